"""Whether a program was built with a sanitizer that takes shadow memory."""


def sanitized(program: str) -> bool:
    """Limits on memory do not hold for such a program: its shadow memory is many times what it uses itself."""
    with open(program, "rb") as file:
        contents = file.read()
    return b"__asan_init" in contents or b"__tsan_init" in contents
