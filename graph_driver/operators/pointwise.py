"""Which operators mean the same over any order and shape of the same elements."""

from __future__ import annotations

# Operators that mean the same over any shape of the same row-major memory (numpy broadcasting).
ELEMENTWISE = frozenset(
    """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
    CastLike Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish
    Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal
    Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu
    Where Xor polyc::RequantizeSums polyc::RequantizeOnce""".split()
)
# Likewise, with one scale for all elements.
PER_TENSOR = frozenset(("QuantizeLinear", "DequantizeLinear", "polyc::QuantizeByReciprocal", "polyc::Requantize"))
