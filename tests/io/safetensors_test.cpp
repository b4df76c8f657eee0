#include "src/io/safetensors.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kernels/core/error.h"
#include "src/io/files.h"
#include "tests/catch.h"
#include "tests/io/interop.h"
#include "tests/io/scratch_folder.h"
#include "tests/io/write_floats.h"

using namespace coda;
using namespace coda::test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

/// A file image: length, header, data. `length`, if given, replaces the header's own.
std::string image(const std::string& header, const std::string& data, std::optional<std::uint64_t> length = {}) {
    const std::uint64_t prefix = length.value_or(header.size());
    std::string out(sizeof prefix, '\0');
    std::memcpy(out.data(), &prefix, sizeof prefix);
    return out + header + data;
}

template <class T>
std::string raw(std::initializer_list<T> values) {
    return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

std::vector<StoredTensor> parse(const std::string& file) { return parse_safetensors(bytes_of(file), "f.safetensors"); }

std::string refusal(const std::string& file) {
    return message_of([&] { parse(file); });
}

template <class Real>
std::vector<Real> values(const StoredTensor& tensor) {
    std::vector<Real> out(static_cast<std::size_t>(tensor.count));
    tensor.read(0, std::span(out));
    return out;
}

/// Element i of tensor t, by the formula of safetensors_interop.py: a multiple of 1/16 below 8, exact in F16 and BF16.
float pattern(std::size_t t, std::int64_t i) {
    return static_cast<float>((7 * i + 3 * static_cast<std::int64_t>(t)) % 256 - 128) / 16;
}

void write_pattern(const fs::path& path, std::span<const TensorSpec> tensors, std::string_view dtype) {
    write_floats(path, tensors, dtype, [](std::size_t index, std::int64_t row, std::span<float> out) {
        const auto cols = static_cast<std::int64_t>(out.size());
        for (std::int64_t i = 0; i < cols; ++i) out[static_cast<std::size_t>(i)] = pattern(index, row * cols + i);
    });
}

const std::vector<TensorSpec> kTensors{{"a", {3, 5}}, {"b.weight", {7}}, {"c", {2, 3, 4}}, {"d", {1, 1}}};

}  // namespace

TEST_CASE("every float dtype of safetensors is read exactly") {
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    // binary16: 1, -2, the smallest subnormal 2^-24, the largest subnormal, the smallest normal, 65504, infinities,
    // NaN.
    const std::string half =
        raw<std::uint16_t>({0x3c00, 0xc000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x8000, 0x7e00});
    const std::string file = image(
        R"({"half":{"dtype":"F16","shape":[10],"data_offsets":[0,20]},)"
        R"("b":{"dtype":"BF16","shape":[2,1],"data_offsets":[20,24]},)"
        R"("f":{"dtype":"F32","shape":[],"data_offsets":[24,28]},"empty":{"dtype":"F32","shape":[0,4],"data_offsets":[28,28]},)"
        R"("d":{"dtype":"F64","shape":[1,2],"data_offsets":[28,44]},"__metadata__":{"format":"pt"}}  )",
        half + raw<std::uint16_t>({0x3f80, 0xc040}) + raw<float>({0.1f}) + raw<double>({0.1, -1e300}));
    CHECK(parse(image(R"({"__metadata__":null,"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", raw<float>({1})))
              .size() == 1);
    const std::vector<StoredTensor> tensors = parse(file);
    REQUIRE(tensors.size() == 5);  // in the order of their data

    CHECK(tensors[0].name == "half");
    const std::vector<float> halves = values<float>(tensors[0]);
    const std::vector<float> expected{1,     -2,       0x1p-24f,  1023 * 0x1p-24f, 0x1p-14f,
                                      65504, infinity, -infinity, -0.0f,           nan};
    for (std::size_t i = 0; i + 1 < expected.size(); ++i) CHECK(halves[i] == expected[i]);
    CHECK(std::signbit(halves[8]));
    CHECK(std::isnan(halves[9]));

    CHECK(values<float>(tensors[1]) == std::vector<float>{1, -3});
    CHECK(values<double>(tensors[1]) == std::vector<double>{1, -3});
    CHECK(tensors[2].shape.empty());
    CHECK(values<float>(tensors[2]) == std::vector<float>{0.1f});
    CHECK(tensors[3].count == 0);
    CHECK(values<double>(tensors[4]) == std::vector<double>{0.1, -1e300});
    CHECK(values<float>(tensors[4]) == std::vector<float>{0.1f, -infinity});

    std::vector<float> part(3);
    tensors[0].read(3, std::span(part));
    CHECK(part[2] == 65504);
    CHECK_THROWS_AS(tensors[0].read(8, std::span(part)), Error);
    CHECK_THROWS_AS(tensors[0].read(-1, std::span(part)), Error);
}

TEST_CASE("a dtype without a float value is listed, and refused when it is read") {
    const std::string file =
        image(R"({"steps":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", std::string(8, '\0'));
    const std::vector<StoredTensor> tensors = parse(file);
    REQUIRE(tensors.size() == 1);
    CHECK(tensors[0].dtype == "I64");
    const std::string message = message_of([&] { values<float>(tensors[0]); });
    CHECK(contains(message, "f.safetensors: tensor \"steps\" has dtype I64"));
}

TEST_CASE("hostile and damaged safetensors files are refused, naming the file and the tensor") {
    struct Case {
        std::string file, says;
    };
    const std::string eight(8, '\0');
    const auto tensor = [&](const std::string& body) { return image(text("{\"w\":{", body, "}}"), eight); };
    const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
    REQUIRE(refusal(tensor(good)).empty());
    const std::vector<Case> cases{
        {"", "not a safetensors file"},
        {"1234567", "not a safetensors file"},
        {image("{}", "", 3), "cut short"},
        {image("{}", "", 100'000'001), "cut short"},
        {image("{}", "", std::numeric_limits<std::uint64_t>::max()), "cut short"},
        {image("{}", "", std::numeric_limits<std::uint64_t>::max() - 7), "cut short"},
        {image("", ""), "does not begin with '{'"},
        {image(" {}", ""), "does not begin with '{'"},
        {image("[]", ""), "does not begin with '{'"},
        {image("{", ""), "f.safetensors header:1:"},
        {image("{}{", ""), "f.safetensors header:1:"},
        {image("{\"\xff\":1}", ""), "f.safetensors header:1:"},
        {image(text("{\"a\":", std::string(100'000, '[')), ""), "nested more than"},
        {image("{{{{", ""), "f.safetensors header:1:"},
        {image(R"({"w":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", eight), "\"w\" shape"},
        {image(R"({"w":1})", ""), "\"w\" must have dtype"},
        {image(R"({"__metadata__":{"a":1}})", ""), "__metadata__"},
        {image(R"({"__metadata__":[]})", ""), "__metadata__"},
        {image(text("{\"w\":{", good, "},\"w\":{", good, "}}"), eight), "the key \"w\" is given twice"},
        {tensor(good + R"(,"dtype":"F32")"), "the key \"dtype\" is given twice"},
        {tensor(good + R"(,"extra":1)"), "\"w\" must have dtype"},
        {tensor(R"("dtype":"F32","shape":[2])"), "\"w\" must have dtype"},
        {tensor(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), "\"w\" has an unknown dtype: \"F33\""},
        {tensor(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), "\"w\" has an unknown dtype: 7"},
        {tensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), "\"w\" shape"},
        {tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "\"w\" shape"},
        {tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "\"w\" shape"},
        {tensor(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), "\"w\" shape"},
        {tensor(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8])"), "\"w\" shape"},
        {tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"), "\"w\" shape"},
        {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"), "more than 2^63 bits"},
        {tensor(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"), "more than 2^63 bits"},
        {tensor(R"("dtype":"F32","shape":[576460752303423490],"data_offsets":[0,8])"), "more than 2^63 bits"},
        {tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
         "\"w\" has 8 bytes, but F32 of shape [3] takes 12"},
        {tensor(R"("dtype":"F4","shape":[15],"data_offsets":[0,7])"), "\"w\" has 7 bytes"},
        {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), "\"w\" data_offsets"},
        {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8])"), "\"w\" data_offsets"},
        {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "\"w\" data_offsets"},
        {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "\"w\" data_offsets"},
        {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])"), "\"w\" ends at data byte 12 of 8"},
        {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[9223372036854775800,9223372036854775807])"), "cut short"},
        {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "\"w\" begins at data byte 4 and leaves a hole"},
        {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "4 bytes follow the last tensor"},
        {image(
             R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
             eight),
         "\"w\" begins at data byte 4 and overlaps"},
        {image(
             R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
             eight),
         "overlaps"},
    };
    for (const Case& c : cases) {
        const std::string message = refusal(c.file);
        INFO("expected: " << c.says << "\ngot: " << message);
        CHECK(message.starts_with("f.safetensors"));
        CHECK(contains(message, c.says));
        CHECK(message.size() < 1000);
    }
}

TEST_CASE("a written safetensors file is read back, its data aligned") {
    const ScratchFolder folder;
    for (const std::string_view dtype : {"F32", "BF16"}) {
        const fs::path path = folder.path() / "w.safetensors";
        write_pattern(path, kTensors, dtype);  // the second time, over the first file
        const std::string file = read_file(path);
        std::uint64_t header = 0;
        std::memcpy(&header, file.data(), sizeof header);
        CHECK(header % 8 == 0);

        const std::vector<StoredTensor> tensors = parse_safetensors(bytes_of(file), path.string());
        REQUIRE(tensors.size() == kTensors.size());
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            CHECK(tensors[t].name == kTensors[t].name);
            CHECK(tensors[t].shape == kTensors[t].shape);
            CHECK(tensors[t].dtype == (dtype == "BF16" ? "BF16" : "F32"));
            const std::vector<float> read = values<float>(tensors[t]);
            for (std::int64_t i = 0; i < tensors[t].count; ++i) {
                CHECK(read[static_cast<std::size_t>(i)] == pattern(t, i));
            }
        }
    }
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a safetensors file that another program cuts short while it is open is named") {
    const ScratchFolder folder;
    const fs::path path = folder.path() / "model.safetensors";
    write_pattern(path, kTensors, "F32");
    const SafetensorsFolder open(folder.path());
    fs::resize_file(path, 16);
    for (const auto& [name, tensor] : open.tensors()) {
        std::vector<float> values(static_cast<std::size_t>(tensor.count));
        CHECK_THROWS_WITH(tensor.read(0, std::span(values)), Contains(path.string()) && Contains("cut short"));
    }
}

TEST_CASE("bf16 weights are rounded to nearest even when written") {
    const ScratchFolder folder;
    const fs::path path = folder.path() / "w.safetensors";
    const std::vector<TensorSpec> tensor{{"w", {3}}};
    // bf16 keeps 7 bits of fraction. 1 + 2^-8 is a tie and goes to the even 1; 1 + 3 2^-8 is a tie and goes to 1 +
    // 2^-6.
    write_floats(path, tensor, "BF16", [](std::size_t, std::int64_t, std::span<float> out) {
        out[0] = 1 + 0x1p-8f, out[1] = 1 + 3 * 0x1p-8f, out[2] = 1 + 0x1p-8f + 0x1p-20f;
    });
    const std::string file = read_file(path);
    CHECK(values<float>(parse_safetensors(bytes_of(file), "w")[0]) == std::vector<float>{1, 1 + 0x1p-6f, 1 + 0x1p-7f});
    CHECK_THROWS_AS(write_pattern(path, tensor, "I32"), Error);
    CHECK_THROWS_AS(write_pattern(path, tensor, "F16"), Error);
}

TEST_CASE("a write that fails leaves the former file and nothing else") {
    const ScratchFolder folder;
    const fs::path path = folder.path() / "w.safetensors";
    write_pattern(path, kTensors, "F32");
    const std::string before = read_file(path);
    CHECK_THROWS_WITH(write_floats(path, kTensors, "F32",
                                   [](std::size_t index, std::int64_t, std::span<float>) {
                                       if (index == 2) throw Error("no more rows");
                                   }),
                      "no more rows");
    CHECK(read_file(path) == before);
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
    const fs::path absent = folder.path() / "absent" / "w.safetensors";
    CHECK(contains(message_of([&] { write_pattern(absent, kTensors, "F32"); }), absent.string()));
}

TEST_CASE("a sharded checkpoint is written within its limit and read through its index") {
    const ScratchFolder folder;
    // f32 bytes of kTensors: 60, 28, 96, 4. With at most 90 per shard: {a, b}, {c}, which exceeds the limit, {d}.
    const auto rows = [](std::size_t index, std::int64_t row, std::span<float> out) {
        std::fill(out.begin(), out.end(), static_cast<float>(100 * index) + static_cast<float>(row));
    };
    write_safetensors_folder(folder.path(), kTensors, 90, stored("F32", rows));
    const fs::path index_path = folder.path() / "model.safetensors.index.json";
    const nlohmann::json index = nlohmann::json::parse(read_file(index_path));
    CHECK(index["metadata"]["total_size"] == 188);
    CHECK(index["weight_map"]["a"] == "model-00001-of-00003.safetensors");
    CHECK(index["weight_map"]["b.weight"] == "model-00001-of-00003.safetensors");
    CHECK(index["weight_map"]["c"] == "model-00002-of-00003.safetensors");
    CHECK(index["weight_map"]["d"] == "model-00003-of-00003.safetensors");

    const SafetensorsFolder checkpoint(folder.path());
    REQUIRE(checkpoint.tensors().size() == kTensors.size());
    CHECK(values<float>(checkpoint.tensors().at("c"))[23] == 205);
    CHECK(values<float>(checkpoint.tensors().at("d"))[0] == 300);

    const auto refused = [&](const nlohmann::json& changed) {
        std::ofstream(index_path) << changed;
        return message_of([&] { SafetensorsFolder again(folder.path()); });
    };
    nlohmann::json changed = index;
    changed["weight_map"]["d"] = "model-00002-of-00003.safetensors";
    CHECK(contains(refused(changed), "\"d\" is not in \"model-00002-of-00003.safetensors\""));
    changed = index;
    changed["weight_map"]["e"] = "model-00002-of-00003.safetensors";
    CHECK(contains(refused(changed), "\"e\" is not in"));
    changed = index;
    changed["weight_map"].erase("b.weight");
    CHECK(contains(refused(changed), "\"b.weight\" is not in model.safetensors.index.json"));
    changed = index;
    changed["weight_map"]["a"] = "../w.safetensors";
    CHECK(contains(refused(changed), "not the name of a safetensors file"));
    changed = index;
    changed["weight_map"]["a"] = "model-00004-of-00003.safetensors";
    CHECK(contains(refused(changed), "model-00004-of-00003.safetensors"));
    CHECK(contains(refused(nlohmann::json::array()), "weight_map"));
    CHECK(contains(refused({{"weight_map", 3}}), "weight_map"));
    CHECK(refused(index).empty());

    fs::copy(folder.path() / "model-00003-of-00003.safetensors", folder.path() / "again.safetensors");
    changed = index;
    changed["weight_map"]["f"] = "again.safetensors";
    CHECK(contains(refused(changed), "\"d\" is in"));
}

TEST_CASE("a folder without safetensors says so") {
    const ScratchFolder folder;
    const auto refused = [](const fs::path& path) { return message_of([&] { SafetensorsFolder checkpoint(path); }); };
    CHECK(contains(refused(folder.path()), "neither model.safetensors nor"));
    CHECK(contains(refused(folder.path() / "absent"), "no such folder"));
}

TEST_CASE("the safetensors package reads our files and we read its", "[interop]") {
    const ScratchFolder folder;
    const fs::path ours = folder.path() / "ours", theirs = folder.path() / "theirs.safetensors";
    fs::create_directories(ours);
    write_pattern(ours / "F32.safetensors", kTensors, "F32");
    write_pattern(ours / "BF16.safetensors", kTensors, "BF16");
    if (!run_interop("files " + ours.string() + " " + theirs.string())) return;

    const std::string file = read_file(theirs);
    const std::vector<StoredTensor> tensors = parse_safetensors(bytes_of(file), theirs.string());
    REQUIRE(tensors.size() == 4);
    for (const StoredTensor& tensor : tensors) {
        CHECK(tensor.name == tensor.dtype);  // the script names each tensor by its dtype
        CHECK(tensor.shape == std::vector<std::int64_t>{4, 6});
        const std::vector<float> read = values<float>(tensor);
        for (std::int64_t i = 0; i < tensor.count; ++i) CHECK(read[static_cast<std::size_t>(i)] == pattern(9, i));
    }
}
