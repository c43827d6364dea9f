"""How this room's functions are compiled."""

from typing import Any

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

ir: Any = cgutils.ir  # of the package that numba brings
compiled = njit(nogil=True, error_model="numpy")


def _pointer(_: Any, image: Any) -> Any:
    """The image as a bare pointer. Compiled functions index that instead of the array: without counting references to
    it at every call and without looking for negative indices the clock runs three times as fast."""
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0]).data

    return types.CPointer(image.dtype)(image), codegen


pointer: Any = intrinsic(_pointer)


def _narrow(_: Any, image: Any) -> Any:
    """The image as 32-bit cells, for what is so large that half the size counts: its cell n is 2n and 2n + 1."""
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32).as_pointer())

    return types.CPointer(types.int32)(image), codegen


narrow: Any = intrinsic(_narrow)


VECTOR = 16  # cells of 32 bits that are looked at together


def _cells(builder: Any, args: Any) -> Any:
    """The cells of an image of 32 bits from some place on."""
    kind = ir.VectorType(ir.IntType(32), VECTOR).as_pointer()
    return builder.load(builder.bitcast(builder.gep(args[0], [args[1]]), kind), align=4)


def _first_of(_: Any, image: Any, at: Any, value: Any) -> Any:
    """Which of VECTOR cells is the first that holds a value; VECTOR if none does."""
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, cells = ir.IntType(32), _cells(builder, args)
        one = builder.insert_element(ir.Constant(cells.type, ir.Undefined), builder.trunc(args[2], word), word(0))
        same = builder.icmp_signed("==", cells, builder.shuffle_vector(one, one, ir.Constant(cells.type, [0] * VECTOR)))
        bits = builder.or_(builder.zext(builder.bitcast(same, ir.IntType(VECTOR)), word), word(1 << VECTOR))
        return builder.zext(builder.cttz(bits, ir.IntType(1)(1)), ir.IntType(64))

    return types.int64(image, types.int64, types.int64), codegen


first_of: Any = intrinsic(_first_of)


def _least_of(_: Any, image: Any, at: Any) -> Any:
    """The least value of VECTOR cells."""
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cells = _cells(builder, args)
        kind = ir.FunctionType(ir.IntType(32), [cells.type])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.smin.v{VECTOR}i32")
        return builder.sext(builder.call(function, [cells]), ir.IntType(64))

    return types.int64(image, types.int64), codegen


least_of: Any = intrinsic(_least_of)


def _prefetch(_: Any, image: Any, at: Any) -> Any:
    """Begin to fetch what the image holds at some place, which is asked for soon."""
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        place = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
        builder.call(function, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(image, at), codegen


prefetch: Any = intrinsic(_prefetch)


@compiled
def popcount4(mask):
    return (mask & 1) + (mask >> 1 & 1) + (mask >> 2 & 1) + (mask >> 3 & 1)
