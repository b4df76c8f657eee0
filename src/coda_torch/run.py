"""Training loops in Python over a run of coda_train: its gradients, and its weights as tensors of PyTorch."""

import ctypes

import torch

from coda_torch import library

_DTYPES = {library.F64: torch.float64, library.F32: torch.float32, library.BF16: torch.bfloat16}


class Run:
    """The model, its memory and its passes; data, learning rate, log and, if wanted, the optimizer are the caller's.

        run = Run("--config", "llama1b.json", "--training.grad_accumulation_steps", "4")
        for tokens, targets in batches:      # int32, run.step_shape; a negative target is ignored
            run.gradients(tokens, targets)
            run.update(3e-4)                 # AdamW of the configuration; or any optimizer, then run.publish()
            print(run.result())

    The flags are those of coda_train's configuration, --init-from and --resume. A call that fails raises RuntimeError
    with coda_train's message. One run at a time per process.
    """

    def __init__(self, *flags, team=None):
        self._library, self._run = library.load(), ctypes.c_void_p()
        self._team = library.struct_of(team) if team else None
        words = library.words_of(flags)
        self._call("open", len(words), words, ctypes.byref(self._team) if team else None, ctypes.byref(self._run))
        shape = library.Shape()
        self._call("shape_of", self._run, ctypes.byref(shape))
        self.step_shape = (shape.micro_batches, shape.batch, shape.seq_len)
        self.on_gpu, self.first_step, self._tensors = shape.where == library.GPU, shape.step, shape.tensors
        self.ranks = team.ranks if team else 1

    def close(self):
        """Frees the run's memory. Its tensors must not be used any more."""
        self._library.coda_close(self._run)
        self._run = None

    def gradients(self, tokens, targets):
        """The gradients of a step's mean loss. They are there when the call returns."""
        self._call("gradients", self._run, *self._ids(self.step_shape, tokens, targets))

    def update(self, learning_rate):
        """The configured optimizer's step."""
        self._call("update", self._run, ctypes.c_double(learning_rate))

    def publish(self):
        """Instead of update(), after parameters have been changed: the passes read them from now on."""
        if self.on_gpu:
            torch.cuda.synchronize()  # PyTorch's stream, which has changed them, is not the run's
        self._call("publish", self._run)

    def result(self):
        """(loss, gradient norm before clipping) of the last step, after update() or publish()."""
        loss, norm = ctypes.c_double(), ctypes.c_double()
        self._call("result", self._run, ctypes.byref(loss), ctypes.byref(norm))
        return loss.value, norm.value

    def validate(self, tokens, targets):
        """The mean loss of one micro-batch."""
        loss = ctypes.c_double()
        self._call("validate", self._run, *self._ids(self.step_shape[1:], tokens, targets), ctypes.byref(loss))
        return loss.value

    def segment(self, name):
        """"master", "gradient", "m", "v" or "working": a flat tensor in the run's memory."""
        found = library.Segment()
        self._call("segment_of", self._run, name.encode(), ctypes.byref(found))
        dtype = _DTYPES[found.dtype]
        size = found.elements * torch.empty((), dtype=dtype).element_size()
        if self.on_gpu:
            bytes_ = torch.as_tensor(_GpuBytes(found.base, size), device="cuda")
        else:
            bytes_ = torch.frombuffer((ctypes.c_uint8 * size).from_address(found.base), dtype=torch.uint8)
        return bytes_.view(dtype)

    def parameters(self):
        """{Hugging Face name: Parameter}, views of the master weights whose .grad are views of the gradients. Pairs of
        rotary embedding lie next to each other in the rows of q and k; state_dict() has the order of Hugging Face."""
        if self.ranks > 1:
            raise RuntimeError("a rank of several has parts of the master weights only: see segment()")
        master, gradient, found = self.segment("master"), self.segment("gradient"), {}
        for name, of in self._described():
            shape, strides = ((of.rows, of.cols), (of.row_stride, 1)) if of.matrix else ((of.cols,), (1,))
            found[name] = torch.nn.Parameter(master.as_strided(shape, strides, of.element))
            found[name].grad = gradient.as_strided(shape, strides, of.element)
        return found

    def state_dict(self):
        """Copies of the weights, as a Hugging Face folder has them."""
        parameters, heads = self.parameters(), dict(self._described())
        return {name: _without_pairs(parameter.detach(), heads[name].head_dim).clone()
                for name, parameter in parameters.items()}

    def _described(self):
        for index in range(self._tensors):
            of = library.Tensor()
            self._call("tensor_of", self._run, index, ctypes.byref(of))
            yield of.name.decode(), of

    def _ids(self, shape, *given):
        arrays = [torch.as_tensor(ids).to(device="cpu", dtype=torch.int32).contiguous() for ids in given]
        for array in arrays:
            if tuple(array.shape) != tuple(shape):
                raise ValueError(f"tokens and targets must be {tuple(shape)}, and one is {tuple(array.shape)}")
        self._kept = arrays  # until the next call
        return [ctypes.c_void_p(array.data_ptr()) for array in arrays]

    def _call(self, name, *arguments):
        if getattr(self._library, f"coda_{name}")(*arguments) != 0:
            raise RuntimeError(self._library.coda_problem().decode())


class _GpuBytes:
    """Memory of a GPU that PyTorch has not allocated."""

    def __init__(self, base, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (base, False), "version": 3}


def _without_pairs(rows, head_dim):
    """Row (head, 2 i + b) as row (head, i + b head_dim / 2); of a vector, the element."""
    if head_dim == 0:
        return rows
    return rows.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)
