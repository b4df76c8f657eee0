// The program is built for x86-64-v3. On an older processor it would stop at some illegal instruction. Only
// this file is built for plain x86-64, and it reports that before anything else runs.
#include <unistd.h>
#include <cstdlib>

namespace {

__attribute__((constructor(101))) void check_processor() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return;
    static const char message[] =
        "coda_train: this processor lacks AVX2, FMA or BMI2 (x86-64-v3), which this build needs; run it on an Intel "
        "Haswell, AMD Zen or later\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
    _exit(1);
}

}  // namespace
