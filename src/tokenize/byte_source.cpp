#include "src/tokenize/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "kernels/core/error.h"
#include "src/io/files.h"

namespace coda {
namespace {

constexpr std::size_t kBlock = std::size_t{256} << 10;
constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";

}  // namespace

/// Takes compressed bytes, gives plain ones.
struct ByteSource::Decoder {
    virtual ~Decoder() = default;
    struct Progress {
        std::size_t used = 0, made = 0;
    };
    /// Throws Error with the reason for damaged data.
    virtual Progress run(std::span<char> in, std::span<char> out) = 0;
    /// Whether the data may end here.
    bool complete = true;
};

namespace {

class Gunzip : public ByteSource::Decoder {
  public:
    Gunzip() { require(inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK, "out of memory for gzip"); }
    ~Gunzip() override { inflateEnd(&stream_); }

    Progress run(std::span<char> in, std::span<char> out) override {
        if (complete) inflateReset(&stream_);  // the next member: gzip files may be joined with cat
        stream_.next_in = reinterpret_cast<Bytef*>(in.data());
        stream_.avail_in = static_cast<uInt>(in.size());
        stream_.next_out = reinterpret_cast<Bytef*>(out.data());
        stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1U << 30));
        const uInt room = stream_.avail_out;
        const int status = inflate(&stream_, Z_NO_FLUSH);
        require(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR,
                stream_.msg != nullptr ? stream_.msg : "it cannot be decompressed");
        complete = status == Z_STREAM_END;
        return {in.size() - stream_.avail_in, room - stream_.avail_out};
    }

  private:
    z_stream stream_{};
};

class Unzstd : public ByteSource::Decoder {
  public:
    Unzstd() : stream_(ZSTD_createDStream()) {
        require(stream_ != nullptr, "out of memory for zstd");
        ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 31);  // archives of text are often made with --long
    }
    ~Unzstd() override { ZSTD_freeDStream(stream_); }

    Progress run(std::span<char> in, std::span<char> out) override {
        ZSTD_inBuffer input{in.data(), in.size(), 0};
        ZSTD_outBuffer output{out.data(), out.size(), 0};
        const std::size_t status = ZSTD_decompressStream(stream_, &output, &input);
        require(ZSTD_isError(status) == 0, ZSTD_getErrorName(status));
        complete = status == 0;
        return {input.pos, output.pos};
    }

  private:
    ZSTD_DStream* stream_;
};

}  // namespace

ByteSource::ByteSource(const std::string& path) : name_(path == "-" ? "standard input" : path) {
    owned_ = path != "-";
    descriptor_ = owned_ ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (descriptor_ < 0) throw_errno("open", name_, errno);
    struct stat status {};
    const bool folder = ::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode);
    if (!folder) {
        refill();
        const std::string_view head(raw_.data(), raw_.size());
        if (head.starts_with(kGzip)) decoder_ = std::make_unique<Gunzip>();
        if (head.starts_with(kZstd)) decoder_ = std::make_unique<Unzstd>();
        return;
    }
    ::close(descriptor_);
    throw Error(text(name_, ": is a folder; name its files, say ", name_, "/*.jsonl"));
}

ByteSource::~ByteSource() {
    if (owned_) ::close(descriptor_);
}

std::size_t ByteSource::read_raw(std::span<char> out) {
    std::size_t filled = 0;
    while (filled < out.size() && !end_) {
        const ssize_t count = ::read(descriptor_, out.data() + filled, out.size() - filled);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw_errno("read", name_, errno);
        end_ = count == 0;
        filled += static_cast<std::size_t>(count);
        consumed_ += count;
    }
    return filled;
}

void ByteSource::refill() {
    raw_.resize(kBlock);
    raw_.resize(read_raw(raw_));
    raw_begin_ = 0;
}

std::size_t ByteSource::read(std::span<char> out) {
    std::size_t filled = 0;
    while (filled < out.size()) {
        const std::span<char> rest = out.subspan(filled);
        if (raw_begin_ == raw_.size()) {
            if (decoder_ == nullptr && rest.size() >= kBlock) return filled + read_raw(rest);
            refill();
        }
        const std::span<char> input = std::span(raw_).subspan(raw_begin_);
        if (decoder_ == nullptr) {
            const std::size_t count = std::min(rest.size(), input.size());
            std::copy_n(input.begin(), count, rest.begin());
            raw_begin_ += count;
            filled += count;
            if (input.empty()) break;
            continue;
        }
        if (input.empty() && decoder_->complete) break;
        Decoder::Progress progress;
        try {
            progress = decoder_->run(input, rest);
        } catch (const Error& error) {
            throw Error(text(name_, ": damaged compressed data: ", error.what()));
        }
        raw_begin_ += progress.used;
        filled += progress.made;
        require(!input.empty() || progress.made > 0, name_,
                ": the compressed data ends in the middle; was it cut off?");
    }
    return filled;
}

}  // namespace coda
