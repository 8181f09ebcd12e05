"""As much of torch as the package uses, over numpy, for machines without it: types that torch does not know are refused.

The tests of examples/ use the real one.
"""

import numpy as np


class DType:
    def __init__(self, name, array):
        self.name, self.array = name, np.dtype(array)

    def __repr__(self):
        return f"torch.{self.name}"


uint8, int8, int16, int32, int64 = (DType(name, name) for name in ("uint8", "int8", "int16", "int32", "int64"))
float16, float32, float64 = (DType(name, name) for name in ("float16", "float32", "float64"))
bool = DType("bool", "bool")  # noqa: A001
bfloat16 = DType("bfloat16", "int16")  # its bits
_OF_NUMPY = {
    dtype.array: dtype for dtype in (uint8, int8, int16, int32, int64, float16, float32, float64, bool)
}


class Tensor:
    def __init__(self, array, dtype, device="cpu"):
        self.array, self.dtype, self.device = array, dtype, device

    @property
    def shape(self):
        return self.array.shape

    def tolist(self):
        return self.array.tolist()

    def view(self, dtype):
        assert dtype.array.itemsize == self.array.itemsize
        return Tensor(self.array.view(dtype.array), dtype, self.device)

    def to(self, device, non_blocking=False):
        return Tensor(self.array, self.dtype, device)

    def detach(self):
        return self

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array), self.dtype, self.device)

    def cpu(self):
        return self.to("cpu")

    def numpy(self):
        if self.dtype is bfloat16:
            raise TypeError("Got unsupported ScalarType BFloat16")
        assert self.device == "cpu"
        return self.array


def from_numpy(array):
    if array.dtype not in _OF_NUMPY:
        raise TypeError(f"can't convert np.ndarray of type numpy.{array.dtype}")
    return Tensor(array, _OF_NUMPY[array.dtype])


def zeros(count, dtype=float32):
    return Tensor(np.zeros(count, dtype.array), dtype)
