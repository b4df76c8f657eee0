#include "src/core/file_kind.h"

namespace coda {

const char* file_kind(std::filesystem::file_type type) {
    using std::filesystem::file_type;
    switch (type) {
        case file_type::directory: return "a folder";
        case file_type::fifo: return "a FIFO";
        case file_type::block:
        case file_type::character: return "a device";
        case file_type::socket: return "a socket";
        case file_type::symlink: return "a symbolic link";
        case file_type::regular: return "a file";
        case file_type::not_found: return "nothing";
        default: return "something unknown";
    }
}

}  // namespace coda
