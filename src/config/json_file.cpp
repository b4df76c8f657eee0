#include "src/config/json_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/file_kind.h"
#include "src/core/printable.h"

namespace coda {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
constexpr int kMaxDepth = 64;

// "[json.exception.parse_error.101] parse error at line 3, column 7: syntax error ..." without the parts that this
// program says itself, and without the bytes of a file that is not text.
std::string reason(const std::string& what) {
    auto begin = what.find(": ");
    if (begin == std::string::npos) begin = what.find("] ");
    std::string shown = begin == std::string::npos ? what : what.substr(begin + 2);
    std::replace_if(
        shown.begin(), shown.end(), [](unsigned char byte) { return byte < 0x20 || byte >= 0x7f; }, '?');
    return shown;
}

std::string position(const std::string& content, std::size_t byte) {
    const auto end = content.begin() + static_cast<std::ptrdiff_t>(std::min(byte > 0 ? byte - 1 : 0, content.size()));
    const auto line_start = std::find(std::reverse_iterator(end), content.rend(), '\n').base();
    return text(std::count(content.begin(), end, '\n') + 1, ":", end - line_start + 1);
}

}  // namespace

nlohmann::json parse_json_text(const std::string& content, const std::string& file) {
    using Event = nlohmann::json::parse_event_t;
    std::vector<std::set<std::string>> open_objects;
    // The parser itself keeps the last of two equal keys and would silently drop a setting.
    const auto check = [&](int depth, Event event, const nlohmann::json& value) {
        require(depth <= kMaxDepth, file, ": nested more than ", kMaxDepth, " deep");
        if (event == Event::object_start) open_objects.emplace_back();
        if (event == Event::object_end) open_objects.pop_back();
        if (event == Event::key) {
            const auto& key = value.get_ref<const std::string&>();
            require(open_objects.back().insert(key).second, file, ": the key \"", printable(key, ""),
                    "\" is given twice");
        }
        return true;
    };
    // The parser takes a NUL for the end and would drop what follows.
    if (const std::size_t nul = content.find('\0'); nul != std::string::npos) {
        throw Error(text(file, ":", position(content, nul + 1), ": a NUL byte, which is no JSON"));
    }
    try {
        return nlohmann::json::parse(content, check);
    } catch (const nlohmann::json::parse_error& error) {
        throw Error(text(file, ":", position(content, error.byte), ": ", reason(error.what())));
    } catch (const nlohmann::json::exception& error) {
        throw Error(text(file, ": ", reason(error.what())));
    }
}

nlohmann::json read_json_file(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::file_type type = fs::status(path, error).type();
    // What is not there, or cannot be looked at, is left to open, which says why.
    const bool file = type == fs::file_type::regular || type == fs::file_type::not_found || type == fs::file_type::none;
    require(file, path, ": is ", file_kind(type), ", not a JSON file; only a regular file is read");
    errno = 0;
    std::ifstream in(path, std::ios::binary);
    require(in.is_open(), path, ": cannot be opened: ", std::strerror(errno));
    std::string content;
    std::array<char, std::size_t{1} << 16> part;
    while (content.size() <= kMaxBytes && in.read(part.data(), part.size()).gcount() > 0) {
        content.append(part.data(), static_cast<std::size_t>(in.gcount()));
    }
    require(!in.bad(), path, ": cannot be read: ", std::strerror(errno));
    require(content.size() <= kMaxBytes, path, ": larger than ", kMaxBytes >> 20, " MiB; this is not a config file");
    return parse_json_text(content, path);
}

}  // namespace coda
