#include "src/io/data_fingerprint.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/core/integers.h"
#include "src/io/checksum.h"

namespace coda {
namespace {

using nlohmann::json;

constexpr std::int64_t kBlocks = 64, kBlockBytes = 4096;

std::uint64_t sampled_checksum(const FileReader& file) {
    std::vector<std::byte> block(static_cast<std::size_t>(std::min(file.bytes(), kBlockBytes)));
    const std::int64_t last = file.bytes() - static_cast<std::int64_t>(block.size());  // where the last block begins
    const std::int64_t blocks = std::min(kBlocks, ceil_div(file.bytes(), kBlockBytes));
    Xxh64 hash;
    for (std::int64_t i = 0; i < blocks; ++i) {
        // Two factors of 64 bits: last times 63 fits, as no file has 2^57 bytes.
        file.read_at(blocks == 1 ? 0 : last * i / (blocks - 1), block);
        hash.update(block);
    }
    return hash.digest();
}

/// A file's name may hold bytes that JSON cannot.
json valid_utf8(const std::string& name) {
    return json::parse(json(name).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::map<std::string, const json*> by_name(const json& fingerprint) {
    std::map<std::string, const json*> files;
    for (const json& file : fingerprint) files.emplace(file.at("name").get<std::string>(), &file);
    return files;
}

/// How the file `name` has changed.
std::string change_of(const std::string& name, const json& was, const json& is) {
    if (was.at("bytes") == is.at("bytes") && was.at("xxh64") == is.at("xxh64")) {
        if (!was.contains("mask")) return text(name, " had no mask and has one");
        return text(name, is.contains("mask") ? " has another mask" : " had a mask and has none");
    }
    return text(name, " had ", was.at("bytes").dump(), " bytes and has ", is.at("bytes").dump(),
                was.at("bytes") == is.at("bytes") ? ", with other contents" : "");
}

}  // namespace

json data_fingerprint(const TokenRanges& ranges) {
    json fingerprint = json::array();
    std::set<std::string> seen;
    for (const TokenRange& range : ranges) {
        const TokenFile& file = *range.file;
        if (!seen.insert(file.name()).second) continue;
        fingerprint.push_back({{"name", valid_utf8(file.name())},
                               {"bytes", file.file().bytes()},
                               {"xxh64", hex(sampled_checksum(file.file()))}});
        if (file.mask() != nullptr) fingerprint.back()["mask"] = hex(sampled_checksum(file.mask()->file()));
    }
    return fingerprint;
}

DataChanges compare_data(const json& before, const json& now) {
    const auto was = by_name(before), is = by_name(now);
    DataChanges changes;
    for (const auto& [name, file] : is) {
        const auto earlier = was.find(name);
        if (earlier == was.end()) {
            changes.added.push_back(name);
        } else if (*earlier->second != *file) {
            changes.changed.push_back(change_of(name, *earlier->second, *file));
        }
    }
    for (const auto& [name, file] : was) {
        if (!is.contains(name)) changes.removed.push_back(name);
    }
    return changes;
}

}  // namespace coda
