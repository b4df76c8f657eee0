// Files that a program writes by a name it is given: what is there must not be lost.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coda {

/// What a program reads, known by device and inode: a link to an input is that input.
class InputFiles {
  public:
    void add(const std::filesystem::path& file);  // nothing if it does not exist
    /// Every file that lies in `folder` itself, if `folder` exists.
    void add_folder(const std::filesystem::path& folder);
    bool contains(const std::filesystem::path& file) const;

  private:
    std::set<std::pair<dev_t, ino_t>> files_;
};

/// The absolute path with every link resolved as far as it exists: the same for all names of a place.
std::filesystem::path place_of(const std::filesystem::path& path);

/// Throws Error "FLAG PATH: ..." unless `path` can be written without loss: its folder is there and can be written to,
/// and neither at `path` nor at aside_of(path) is anything; with `overwrite` a regular file may be there that is not
/// one of `inputs`.
void require_output_file(const std::string& flag, const std::filesystem::path& path, bool overwrite,
                         const InputFiles& inputs);

/// An output and the flag that asks for it.
using NamedOutput = std::pair<std::string, std::filesystem::path>;

/// Throws Error naming both flags when two outputs, or the names under which they are first written, are the same.
void require_different_outputs(const std::vector<NamedOutput>& outputs);

}  // namespace coda
