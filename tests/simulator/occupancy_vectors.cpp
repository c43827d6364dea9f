// Writes the vectors of occupancy.json: blocks per SM as computed by the vendor's own header for random kernels.
//   pip download nvidia-cuda-runtime-cu12==12.9.79, unpack, then
//   g++ -I nvidia/cuda_runtime/include occupancy_vectors.cpp -o vectors && ./vectors
// Each line: machine, registers per thread, shared bytes per block, threads per block, blocks per SM (0: does not fit).
// The committed file keeps the first 220 that fit and the first 30 that do not.
#include <cstdio>
#include <cstdlib>
#include <cuda_occupancy.h>

struct Chip { const char *name; int major, minor, shared, registers_per_block; };
static const Chip chips[] = {{"gm204", 5, 2, 98304, 65536}, {"gm107", 5, 0, 65536, 65536},
                             {"gm20b", 5, 3, 65536, 32768}, {"gp104", 6, 1, 98304, 65536}};

static int blocks(const Chip &chip, int registers, int shared, int threads) {
    cudaOccDeviceProp p = {};
    p.computeMajor = chip.major, p.computeMinor = chip.minor, p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = 2048, p.regsPerBlock = chip.registers_per_block, p.regsPerMultiprocessor = 65536;
    p.warpSize = 32, p.sharedMemPerBlock = 49152, p.sharedMemPerMultiprocessor = chip.shared, p.numSms = 16;
    p.sharedMemPerBlockOptin = 49152;
    cudaOccFuncAttributes f = {};
    f.maxThreadsPerBlock = 1024, f.numRegs = registers, f.sharedSizeBytes = shared;
    f.partitionedGCConfig = PARTITIONED_GC_OFF, f.maxDynamicSharedSizeBytes = 49152;
    cudaOccDeviceState s = {};
    cudaOccResult r;
    return cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, threads, 0) ? -1 : r.activeBlocksPerMultiprocessor;
}

int main() {
    srand(2015);
    for (int k = 0; k < 800; k++) {
        const Chip &chip = chips[k % 4];
        int registers = 1 + rand() % 255, threads = 1 + rand() % 1024;
        int shared = rand() % 3 ? rand() % 49153 : 0;
        if (rand() % 3 == 0) threads = 32 * (1 + rand() % 32);
        printf("[\"%s\", %d, %d, %d, %d]\n", chip.name, registers, shared, threads,
               blocks(chip, registers, shared, threads));
    }
}
