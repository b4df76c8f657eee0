#include "src/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/core/dtype.h"
#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "src/config/json_file.h"
#include "src/io/files.h"

namespace coda {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is not swapped here");

constexpr std::int64_t kPrefix = 8;                // bytes of the header's length
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::int64_t kDataAlignment = 8;         // of the first data byte, in files written here
constexpr std::size_t kBufferedBytes = 1 << 22;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

constexpr std::pair<std::string_view, std::int64_t> kDtypeBits[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},
    {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64}, {"U64", 64},
};

/// IEEE binary16, storage only.
struct Half {
    std::uint16_t bits = 0;

    operator float() const {
        const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = (bits & 0x7fffu) << 13;
        // binary32's exponent bias is larger by 112. Multiplying makes binary16's subnormals come out right too.
        const bool finite = (bits & 0x7c00u) != 0x7c00u;
        const float value =
            finite ? std::bit_cast<float>(magnitude) * 0x1p112f : std::bit_cast<float>(magnitude | 0x7f800000u);
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
    }
};

/// A file's own words, for a message: at most `kQuoted` bytes as JSON, with control characters escaped.
/// NOTE: not called "quoted": for a std::string that name finds std::quoted, which does not escape them.
std::string escaped(const Json& value) {
    constexpr std::size_t kQuoted = 200;
    const std::string json = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return json.size() <= kQuoted ? json : json.substr(0, kQuoted) + "...";
}

/// Non-negative integers of a JSON array.
std::vector<std::int64_t> sizes(const Json& json, const std::string& where) {
    require(json.is_array(), where, " must be an array of non-negative integers");
    std::vector<std::int64_t> values;
    for (const Json& value : json) {
        require(value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX, where,
                " must be an array of non-negative integers, not ", escaped(value));
        values.push_back(value.get<std::int64_t>());
    }
    return values;
}

/// A tensor of the header. The file has `size` data bytes, from byte `data` on.
StoredTensor parse_tensor(const std::string& name, const Json& json, std::int64_t data, std::int64_t size,
                          const std::string& file) {
    const std::string where = text(file, ": tensor ", escaped(name));
    require(json.is_object() && json.size() == 3 && json.contains("dtype") && json.contains("shape") &&
                json.contains("data_offsets"),
            where, " must have dtype, shape and data_offsets, and nothing else");

    const auto* const known = std::find_if(std::begin(kDtypeBits), std::end(kDtypeBits),
                                           [&](const auto& entry) { return json["dtype"] == Json(entry.first); });
    require(known != std::end(kDtypeBits), where, " has an unknown dtype: ", escaped(json["dtype"]));

    StoredTensor tensor{name, file, known->first, sizes(json["shape"], where + " shape"), 1, 0, 0, {}};
    std::int64_t bits = 0;
    bool fits = true;
    for (const std::int64_t extent : tensor.shape) {
        fits = fits && !__builtin_mul_overflow(tensor.count, extent, &tensor.count);
    }
    require(fits && !__builtin_mul_overflow(tensor.count, known->second, &bits), where, " of shape ",
            shape_text(tensor.shape), " has more than 2^63 bits");

    const std::vector<std::int64_t> offsets = sizes(json["data_offsets"], where + " data_offsets");
    require(offsets.size() == 2 && offsets[0] <= offsets[1], where, " data_offsets must be [begin, end], not ",
            shape_text(offsets));
    const std::int64_t begin = offsets[0], end = offsets[1];
    require(end <= size, where, " ends at data byte ", end, " of ", size, ": the file is cut short");
    require(bits % 8 == 0 && end - begin == bits / 8, where, " has ", end - begin, " bytes, but ", tensor.dtype,
            " of shape ", shape_text(tensor.shape), " takes ", bits / 8);
    tensor.begin = data + begin;
    tensor.bytes = end - begin;
    return tensor;
}

/// Elements from byte `at` of the file on, through a buffer of bounded size where their type is another.
template <class Stored, class Real>
void read_as(const BytesAt& source, std::int64_t at, std::span<Real> to) {
    if constexpr (std::is_same_v<Stored, Real>) return source(at, std::as_writable_bytes(to));
    std::array<Stored, 8192> buffer;
    for (std::size_t first = 0; first < to.size(); first += buffer.size()) {
        const std::span part = to.subspan(first, std::min(buffer.size(), to.size() - first));
        const std::span stored = std::span(buffer).first(part.size());
        source(at + static_cast<std::int64_t>(first * sizeof(Stored)), std::as_writable_bytes(stored));
        for (std::size_t i = 0; i < part.size(); ++i) part[i] = static_cast<Real>(stored[i]);
    }
}

std::int64_t count_of(const TensorSpec& tensor) {
    return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t bytes_of_element(std::string_view dtype) {
    const auto* const known = std::find_if(std::begin(kDtypeBits), std::end(kDtypeBits),
                                           [&](const auto& entry) { return dtype == entry.first; });
    require(known != std::end(kDtypeBits) && known->second % 8 == 0, "a tensor of dtype ", dtype, " cannot be written");
    return known->second / 8;
}
std::int64_t bytes_of_tensor(const TensorSpec& tensor) { return count_of(tensor) * bytes_of_element(tensor.dtype); }

/// Writes all rows of `tensor` through a buffer of bounded size.
void write_rows(ReplacedFile& out, std::size_t index, const TensorSpec& tensor, const RowSource& source) {
    const std::int64_t count = count_of(tensor), cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    const auto row = static_cast<std::size_t>(cols * bytes_of_element(tensor.dtype));
    std::vector<std::byte> buffer;
    for (std::int64_t first = 0; first < count; first += cols) {
        if (buffer.size() + row > kBufferedBytes) {
            out.write(buffer);
            buffer.clear();
        }
        buffer.resize(buffer.size() + row);
        source(index, first / cols, std::span(buffer).last(row));
    }
    out.write(buffer);
}

/// The header of a file of `tensors`, preceded by its length.
std::string header_of(std::span<const TensorSpec> tensors) {
    nlohmann::ordered_json header;
    header[kMetadata] = {{"format", "pt"}};  // transformers refuses files without it
    std::int64_t end = 0;
    for (const TensorSpec& tensor : tensors) {
        const std::int64_t begin = end;
        end += bytes_of_tensor(tensor);
        header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    }
    std::string json = header.dump();
    json.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(json.size()), kDataAlignment)), ' ');
    std::string out(static_cast<std::size_t>(kPrefix), '\0');
    const std::uint64_t length = json.size();
    std::memcpy(out.data(), &length, sizeof length);
    return out + json;
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string out = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) out += text(i == 0 ? "" : ", ", shape[i]);
    return out + "]";
}

template <class Real>
void StoredTensor::read(std::int64_t first, std::span<Real> out) const {
    const auto number = static_cast<std::int64_t>(out.size());
    if (first < 0 || number > count || first > count - number) {
        throw Error(
            text(file, ": ", number, " elements from ", first, " of tensor ", escaped(name), ", which has ", count));
    }
    const auto at = [&](std::size_t size) { return begin + first * static_cast<std::int64_t>(size); };
    if (dtype == "F32") return read_as<float>(*source, at(sizeof(float)), out);
    if (dtype == "BF16") return read_as<Bf16>(*source, at(sizeof(Bf16)), out);
    if (dtype == "F16") return read_as<Half>(*source, at(sizeof(Half)), out);
    if (dtype == "F64") return read_as<double>(*source, at(sizeof(double)), out);
    throw Error(text(file, ": tensor ", escaped(name), " has dtype ", dtype,
                     "; weights are read from F32, BF16, F16 and F64 only"));
}
template void StoredTensor::read(std::int64_t, std::span<float>) const;
template void StoredTensor::read(std::int64_t, std::span<double>) const;

std::vector<StoredTensor> parse_safetensors(BytesAt source, std::int64_t bytes, const std::string& file) {
    std::uint64_t length = 0;
    require(bytes >= kPrefix, file, ": not a safetensors file: ", bytes, " bytes");
    source(0, std::as_writable_bytes(std::span(&length, 1)));
    require(length <= kMaxHeader && length <= static_cast<std::uint64_t>(bytes - kPrefix), file,
            ": not a safetensors file, or cut short: a header of ", length, " bytes in a file of ", bytes);

    std::string json(length, '\0');
    source(kPrefix, std::as_writable_bytes(std::span(json)));
    require(json.starts_with('{'), file, ": not a safetensors file: its header does not begin with '{'");
    const Json header = parse_json_text(json, file + " header");
    const std::int64_t data = kPrefix + static_cast<std::int64_t>(length), size = bytes - data;

    std::vector<StoredTensor> tensors;
    for (const auto& [name, value] : header.items()) {
        if (name == kMetadata) {
            require(value.is_null() || (value.is_object() && std::all_of(value.begin(), value.end(),
                                                                         [](const Json& v) { return v.is_string(); })),
                    file, ": __metadata__ must be an object of strings, or null");
        } else {
            tensors.push_back(parse_tensor(name, value, data, size, file));
        }
    }

    std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
        return std::tuple(a.begin, a.bytes, std::string_view(a.name)) <
               std::tuple(b.begin, b.bytes, std::string_view(b.name));
    });
    const auto shared = std::make_shared<const BytesAt>(std::move(source));
    std::int64_t end = 0;
    for (StoredTensor& tensor : tensors) {
        const std::int64_t begin = tensor.begin - data;
        require(begin == end, file, ": tensor ", escaped(tensor.name), " begins at data byte ", begin,
                begin < end ? " and overlaps the one before it, which ends at " : " and leaves a hole after ", end);
        end = begin + tensor.bytes;
        tensor.source = shared;
    }
    require(end == size, file, ": ", size - end, " bytes follow the last tensor");
    return tensors;
}

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
    const auto source = [bytes](std::int64_t offset, std::span<std::byte> out) {
        const auto part = bytes.subspan(static_cast<std::size_t>(offset), out.size());
        std::copy(part.begin(), part.end(), out.begin());
    };
    return parse_safetensors(source, static_cast<std::int64_t>(bytes.size()), file);
}

SafetensorsFolder::SafetensorsFolder(const fs::path& folder) {
    std::error_code unreadable;
    require(fs::is_directory(folder, unreadable), folder.string(), ": no such folder");
    if (fs::exists(folder / kSingleFile, unreadable)) {
        add_file(folder / kSingleFile);
        return;
    }
    const fs::path path = folder / kIndexFile;
    const bool is_adapter = fs::exists(folder / "adapter_config.json", unreadable);
    require(fs::exists(path, unreadable), folder.string(), ": has neither ", kSingleFile, " nor ", kIndexFile,
            is_adapter ? "; it is an adapter: merge it into the model that it changes first"
                       : "; weights in another format (pytorch_model.bin) must be saved as safetensors first");

    const std::string file = path.string();
    const Json index = read_json_file(file);
    require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), file,
            ": has no object weight_map");
    std::set<std::string> shards;
    for (const auto& [name, shard] : index["weight_map"].items()) {
        // A plain file name: an index must not reach outside its folder, nor name a file that a NUL cuts short.
        require(shard.is_string() && fs::path(shard.get<std::string>()).filename() == shard.get<std::string>() &&
                    shard.get<std::string>().ends_with(".safetensors") &&
                    shard.get<std::string>().find('\0') == std::string::npos,
                file, ": weight_map of ", escaped(name), " is ", escaped(shard),
                ", not the name of a safetensors file");
        shards.insert(shard.get<std::string>());
    }
    for (const std::string& shard : shards) add_file(folder / shard);
    for (const auto& [name, shard] : index["weight_map"].items()) {
        const auto tensor = tensors_.find(name);
        require(tensor != tensors_.end() && fs::path(tensor->second.file).filename() == shard.get<std::string>(), file,
                ": tensor ", escaped(name), " is not in ", escaped(shard));
    }
    for (const auto& [name, tensor] : tensors_) {
        require(index["weight_map"].contains(name), tensor.file, ": tensor ", escaped(name), " is not in ", kIndexFile);
    }
}

void SafetensorsFolder::add_file(const fs::path& path) {
    const auto file = std::make_shared<const FileReader>(path);
    const auto source = [file](std::int64_t offset, std::span<std::byte> out) { file->read_at(offset, out); };
    for (StoredTensor& tensor : parse_safetensors(source, file->bytes(), path.string())) {
        const auto [other, added] = tensors_.emplace(tensor.name, tensor);
        require(added, path.string(), ": tensor ", escaped(tensor.name), " is in ", other->second.file, " too");
    }
}

void store_floats(std::string_view dtype, std::span<const float> row, std::span<std::byte> out) {
    if (dtype == "F32") {
        std::memcpy(out.data(), row.data(), out.size());
        return;
    }
    require(dtype == "BF16", "floats are not stored as ", dtype);
    for (std::size_t i = 0; i < row.size(); ++i) {
        const Bf16 rounded(row[i]);
        std::memcpy(out.data() + i * sizeof rounded, &rounded, sizeof rounded);
    }
}

void write_safetensors(const fs::path& path, std::span<const TensorSpec> tensors, const RowSource& source) {
    const std::string header = header_of(tensors);
    ReplacedFile file(path);
    file.write(bytes_of(header));
    for (std::size_t i = 0; i < tensors.size(); ++i) write_rows(file, i, tensors[i], source);
    file.finish();
}

void write_safetensors_folder(const fs::path& folder, std::span<const TensorSpec> tensors, std::int64_t max_shard_bytes,
                              const RowSource& source) {
    require(max_shard_bytes > 0, folder.string(), ": a shard of ", max_shard_bytes, " bytes holds no tensor");
    std::vector<std::size_t> starts;  // index of each shard's first tensor
    std::int64_t total = 0, in_shard = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::int64_t bytes = bytes_of_tensor(tensors[i]);
        if (starts.empty() || in_shard + bytes > max_shard_bytes) {
            starts.push_back(i);
            in_shard = 0;
        }
        in_shard += bytes;
        total += bytes;
    }
    if (starts.size() <= 1) return write_safetensors(folder / kSingleFile, tensors, source);

    Json weight_map = Json::object();
    for (std::size_t shard = 0; shard < starts.size(); ++shard) {
        const std::size_t first = starts[shard], last = shard + 1 < starts.size() ? starts[shard + 1] : tensors.size();
        std::array<char, 64> name{};
        std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", shard + 1, starts.size());
        for (std::size_t i = first; i < last; ++i) weight_map[tensors[i].name] = name.data();
        write_safetensors(
            folder / name.data(), tensors.subspan(first, last - first),
            [&](std::size_t index, std::int64_t row, std::span<std::byte> out) { source(first + index, row, out); });
    }
    const Json index{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
    replace_file(folder / kIndexFile, bytes_of(index.dump(2) + "\n"));
}

}  // namespace coda
