#include "src/train/batch_dump.h"

#include "src/io/files.h"

namespace coda {

namespace {

/// Version 1.0 of the format: magic, version, header length, a Python dict padded with spaces to 64 bytes.
std::string npy_header(std::int64_t micro_batches, std::int64_t batch, std::int64_t seq_len) {
    std::string dict = text("{'descr': '<i4', 'fortran_order': False, 'shape': (", micro_batches, ", 3, ", batch, ", ",
                            seq_len, "), }");
    constexpr std::size_t kPrefix = 10;
    while ((kPrefix + dict.size() + 1) % 64 != 0) dict += ' ';
    dict += '\n';
    const std::size_t length = dict.size();
    const char prefix[kPrefix] = {
        '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
    return std::string(prefix, kPrefix) + dict;
}

}  // namespace

void dump_batches(const std::filesystem::path& file, const Loader& loader, std::int64_t first_sequence,
                  std::int64_t micro_batches, std::int64_t micro_batch_size, std::int64_t seq_len) {
    ReplacedFile out(file);
    out.write(bytes_of(npy_header(micro_batches, micro_batch_size, seq_len)));
    for (std::int64_t i = 0; i < micro_batches; ++i) {
        const TokenBatch batch = loader.batch(first_sequence + i * micro_batch_size, micro_batch_size);
        const std::vector<std::int32_t> begins(batch.begins.begin(), batch.begins.end());
        for (const auto* plane : {&batch.tokens, &batch.targets, &begins}) {
            out.write(std::as_bytes(std::span(*plane)));
        }
    }
    out.finish();
}

}  // namespace coda
