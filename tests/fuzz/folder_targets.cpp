// The targets whose readers take a folder: each writes its input as one file of a folder of its own.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/math/int4.h"
#include "src/io/checkpoint.h"
#include "src/io/checksum.h"
#include "src/io/files.h"
#include "src/io/int4_matrix.h"
#include "src/io/run_log.h"
#include "src/io/safetensors.h"
#include "tests/fuzz/targets.h"

namespace coda::fuzz {

namespace {

namespace fs = std::filesystem;

/// A temporary folder, removed when the program ends; in memory where the system has such a file system.
class Folder {
  public:
    Folder() {
        std::error_code error;
        const fs::path parent = fs::is_directory("/dev/shm", error) ? fs::path("/dev/shm") : fs::temp_directory_path();
        std::string name = (parent / "coda_fuzz_XXXXXX").string();
        require(::mkdtemp(name.data()) != nullptr, "no temporary folder in ", parent.string());
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

void put(const fs::path& file, std::span<const std::byte> bytes) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    promise(static_cast<bool>(out.flush()), "the input cannot be written");
}

void put_shard(const fs::path& file, const std::string& header, const std::string& data) {
    std::string contents(8, '\0');
    contents[0] = static_cast<char>(header.size());
    put(file, bytes_of(contents + header + data));
}

}  // namespace

void safetensors_index(std::span<const std::byte> input) {
    static const Folder kFolder;
    static const bool kShards = [] {
        put_shard(kFolder.path() / "one.safetensors", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xx");
        put_shard(kFolder.path() / "two.safetensors",
                  R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                  R"("c":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                  "yyz");
        return true;
    }();
    promise(kShards, "the shards are written once");
    put(kFolder.path() / "model.safetensors.index.json", input);
    const SafetensorsFolder opened(kFolder.path());
    for (const auto& [name, tensor] : opened.tensors()) {
        const std::string file = fs::path(tensor.file).filename().string();
        promise(file == (name == "a" ? "one.safetensors" : "two.safetensors"),
                "a tensor comes from a shard that does not hold it");
    }
}

void int4_matrix(std::span<const std::byte> input) {
    constexpr std::int64_t kRows = 8, kColumns = 256;
    static const Folder kFolder;
    put(kFolder.path() / "model.safetensors", input);
    const SafetensorsFolder opened(kFolder.path());
    const std::optional<Int4Matrix> matrix = Int4Matrix::find(opened, "m.weight", kRows, kColumns);
    require(matrix.has_value(), "there is no such matrix");
    constexpr std::size_t kWords = kColumns / kInt4PerWord, kGroups = kColumns / kInt4Group;
    std::vector<std::uint32_t> all(kRows * kWords);
    std::vector<float> scales(kRows * kGroups);
    matrix->read_rows(0, all, scales);
    Int4Reader reader;
    for (std::int64_t row = kRows - 1; row >= 0; --row) {
        std::vector<float> own(kColumns - 7);
        reader.read(*matrix, row, 7, own);
        std::vector<std::uint32_t> words(kWords);
        std::vector<Bf16> rounded(kGroups);
        reader.read(*matrix, row, words, rounded);
        const auto at = static_cast<std::size_t>(row);
        promise(std::equal(words.begin(), words.end(), all.begin() + row * static_cast<std::int64_t>(kWords)),
                "a row's words differ where it is read by itself");
        for (std::size_t i = 7; i < kColumns; ++i) {
            const auto code = static_cast<int>(words[i / kInt4PerWord] >> (4 * (i % kInt4PerWord)) & 15U);
            const float value = static_cast<float>(code - kInt4Zero) * scales[at * kGroups + i / kInt4Group];
            promise(std::memcmp(&own[i - 7], &value, sizeof value) == 0, "an element is not code times scale");
        }
    }
    for (const std::string& part : matrix->parts())
        promise(opened.tensors().contains(part), "a part is not a tensor of the folder");
}

void checkpoint_meta(std::span<const std::byte> input) {
    static const Folder kFolder;
    static const fs::path kCheckpoint = [] {
        fs::path path = kFolder.path() / "step_00000007";
        fs::create_directory(path);
        put(path / "m.bin", bytes_of("0123456789"));
        put(kFolder.path() / "m.bin", bytes_of("0123456789"));
        return path;
    }();
    put(kCheckpoint / "meta.json", input);
    char marker[18];
    std::snprintf(marker, sizeof marker, "%016llx\n", static_cast<unsigned long long>(xxh64(input)));
    put(kCheckpoint / "complete", bytes_of(marker));
    const CheckpointInfo info = open_checkpoint(kCheckpoint);
    promise(info.step == 7, "a checkpoint of another step was opened");
    for (const SegmentInfo& segment : info.segments) {
        promise(segment.name.find('/') == std::string::npos, "a segment outside of the checkpoint was opened");
        promise(segment.bytes >= 0, "a segment has a negative size");
    }
}

void run_log(std::span<const std::byte> input) {
    constexpr std::int64_t kStep = 5;
    static const Folder kFolder;
    const fs::path log = kFolder.path() / "log.jsonl";
    put(log, input);
    const RunHeader header{.config = {{"seed", 1}}, .device = "cpu", .build = "0", .command = "fuzz"};
    RunLog::resume(log, kStep, header);
    const std::string resumed = read_file(log);
    for (const auto& entry : fs::directory_iterator(kFolder.path())) fs::remove_all(entry.path());

    promise(!resumed.empty() && resumed.back() == '\n', "a resumed log has a torn line");
    std::size_t begin = 0;
    for (std::size_t end; (end = resumed.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const auto record = nlohmann::json::parse(resumed.substr(begin, end - begin), nullptr, false);
        promise(record.is_object(), "a resumed log has a line that is no record");
        promise(begin > 0 || record.contains("config"), "a resumed log has no header");
        const auto step = record.find("step");
        if (begin > 0 && step != record.end()) {
            promise(step->is_number_integer() && step->get<std::int64_t>() <= kStep, "a resumed log has a later step");
        }
    }
}

}  // namespace coda::fuzz
