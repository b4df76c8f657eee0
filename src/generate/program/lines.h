// A file or standard input in lines, one at a time, without waiting for the next where others have work to do; or all
// of it at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace coda {

class LineReader {
  public:
    /// "-" is standard input; another path must be a regular file. Throws Error naming it.
    explicit LineReader(const std::string& path);
    ~LineReader();
    LineReader(const LineReader&) = delete;
    LineReader& operator=(const LineReader&) = delete;

    /// The next line that is not blank, without its end. With `wait` none means that there are no more, or an
    /// interrupt; without it also that none has come yet. Throws Error: it cannot be read, or a line is over 64 MiB.
    std::optional<std::string> next(bool wait);

    /// All that is left, unchanged; a part of it after an interrupt. Throws Error: it cannot be read, or is over 64
    /// MiB.
    std::string rest();

    std::int64_t number() const { return number_; }  // of the line that next() gave, from 1
    const std::string& name() const { return name_; }

  private:
    std::optional<std::string> take();
    bool readable(bool wait) const;
    void read();

    std::string name_;
    int descriptor_ = -1;
    std::string rest_;
    std::size_t scanned_ = 0;  // of rest_, without a line's end
    bool ended_ = false;
    std::int64_t number_ = 0;
};

}  // namespace coda
