"""coda_train on several GPUs: libcoda, with PyTorch's distributed engine to move bytes between its ranks."""
