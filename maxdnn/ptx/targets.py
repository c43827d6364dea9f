"""The GPUs a translation can be made for. Knows neither LLVM nor kernels, so that a wrong name is refused at once."""

from ..errors import TranslationError

# Target to the oldest PTX version that knows it, but at least 7.0, which has everything a translation uses (PTX ISA,
# release notes: "Target ISA Notes"). The vendor's assembler 12.9 takes up to 8.8.
PTX_VERSIONS = {
    "sm_50": "7.0", "sm_52": "7.0", "sm_53": "7.0", "sm_60": "7.0", "sm_61": "7.0", "sm_62": "7.0", "sm_70": "7.0",
    "sm_72": "7.0", "sm_75": "7.0", "sm_80": "7.0", "sm_86": "7.1", "sm_87": "7.4", "sm_89": "7.8", "sm_90": "7.8",
    "sm_100": "8.6", "sm_101": "8.6", "sm_103": "8.8", "sm_120": "8.7", "sm_121": "8.8",
}


def check(target: str) -> None:
    """Raises TranslationError for a name that is no known target."""
    if target not in PTX_VERSIONS:
        raise TranslationError(f"target must be one of {', '.join(PTX_VERSIONS)} (got {target!r})")


def for_capability(major: int, minor: int) -> str:
    """The newest known target that a GPU of this compute capability runs: PTX for an older GPU runs on a newer one.
    Raises TranslationError for a GPU older than all."""
    older = [t for t in PTX_VERSIONS if int(t[3:]) <= 10 * major + minor]
    if not older:
        raise TranslationError(f"no translation for compute capability {major}.{minor}; the oldest is for sm_50")
    return older[-1]
