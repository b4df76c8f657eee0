// The bytes of an input: a file or standard input, decompressed if it begins like gzip or zstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace coda {

/// A stream of bytes. Errors name the input.
class ByteSource {
  public:
    /// `path` "-" is standard input. Throws Error for a file that cannot be opened and for a folder.
    explicit ByteSource(const std::string& path);
    ~ByteSource();
    ByteSource(const ByteSource&) = delete;
    ByteSource& operator=(const ByteSource&) = delete;

    /// Fills `out` as far as the input goes; fewer bytes only at its end. Throws Error when it cannot be read, and for
    /// compressed data that is damaged or cut off.
    std::size_t read(std::span<char> out);

    const std::string& name() const { return name_; }
    std::int64_t consumed() const { return consumed_; }  // bytes of the file, compressed ones where it is

    struct Decoder;

  private:
    std::size_t read_raw(std::span<char> out);
    void refill();

    std::string name_;
    int descriptor_ = -1;
    bool owned_ = false, end_ = false;
    std::int64_t consumed_ = 0;
    std::vector<char> raw_;  // read and not yet used: [raw_begin_, raw_.size())
    std::size_t raw_begin_ = 0;
    std::unique_ptr<Decoder> decoder_;  // null for plain bytes
};

}  // namespace coda
