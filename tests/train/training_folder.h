// A folder with a token shard and the runs of a small model that train on it.
#pragma once

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/train/run_options.h"
#include "tests/io/scratch_folder.h"

namespace coda {

/// An llm.c shard of `count` tokens below 64.
inline void write_shard(const std::filesystem::path& file, std::size_t count) {
    std::vector<std::int32_t> header(256, 0);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = static_cast<std::int32_t>(count);
    std::vector<std::uint16_t> tokens;
    for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::uint16_t>(i * i * 7 % 61));
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()), 1024);
    out.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * count));
}

class Folder {
  public:
    Folder() { write_shard(scratch_.path() / "tokens.bin", 1200); }
    ~Folder() { std::fclose(output_); }

    Config config(const std::string& run) const {
        nlohmann::json json = nlohmann::json::parse(R"({
            "model": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "vocab_size": 64, "tie_word_embeddings": true},
            "training": {"seq_len": 8, "micro_batch_size": 3, "grad_accumulation_steps": 2, "steps": 2},
            "validation": {"batches": 3},
            "device": "cpu"
        })");
        json["data"]["train"] = (path() / "tokens.bin").string();
        json["output"]["directory"] = (path() / run).string();
        return parse_config(json, "test");
    }
    const std::filesystem::path& path() const { return scratch_.path(); }
    /// Nothing of it reaches the test's own output.
    RunOptions options() const {
        RunOptions options;
        options.command = "a test";
        options.out = options.err = output_;
        return options;
    }
    nlohmann::json log(const std::string& run) const {
        std::ifstream in(scratch_.path() / run / "log.jsonl");
        nlohmann::json records = nlohmann::json::array();
        for (std::string line; std::getline(in, line);) records.push_back(nlohmann::json::parse(line));
        return records;
    }
    /// A segment of a checkpoint, to the bit.
    std::string segment(const std::string& run, std::int64_t step, const char* name) const {
        std::ifstream in(path() / run / "checkpoints" / text("step_0000000", step) / name, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    /// Weights and moments of a checkpoint, to the bit.
    std::string state(const std::string& run, std::int64_t step) const {
        return segment(run, step, "master.bin") + segment(run, step, "m.bin") + segment(run, step, "v.bin");
    }
    std::string said() const {
        std::rewind(output_);
        std::string all(1 << 14, '\0');
        all.resize(std::fread(all.data(), 1, all.size(), output_));
        return all;
    }

  private:
    ScratchFolder scratch_;
    std::FILE* output_ = std::tmpfile();
};

}  // namespace coda
