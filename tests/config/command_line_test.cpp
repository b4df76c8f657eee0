// The command line as a user types it: flags override the file, --init-from overrides both, and every mistake is named.
#include "src/config/command_line.h"

#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include "src/config/schema.h"
#include "src/config/shell_quote.h"
#include "tests/catch.h"
#include "tests/config/cases.h"

using coda::CommandLine;
using coda::DecoderChoice;
using coda::Error;
using coda::UsageError;
using coda::test::lacking;
using coda::test::message_of;
using coda::test::TemporaryFolder;
using nlohmann::json;

namespace {

CommandLine parse(const std::vector<std::string>& words) {
    std::vector<const char*> argv{"coda_train"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    return coda::parse_command_line(static_cast<int>(argv.size()), argv.data());
}

/// A folder with the small config; parse and error add --config to the words.
class Fixture {
  public:
    std::vector<std::string> with_config(std::vector<std::string> words) const {
        words.insert(words.begin(), {"--config", config});
        return words;
    }
    CommandLine run(const std::vector<std::string>& words) const { return parse(with_config(words)); }
    std::string error(const std::vector<std::string>& words) const {
        return message_of<UsageError>([&] { run(words); });
    }

    TemporaryFolder folder;
    std::string config = folder.write("small.json", coda::test::small_document().dump());
};

json hf_config() {
    return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 256, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
        "tie_word_embeddings": true})");
}

}  // namespace

TEST_CASE_METHOD(Fixture, "only the file") {
    const CommandLine line = run({});
    CHECK(line.config.training.steps == 10);
    CHECK(line.config.output.directory == "runs/small");
    CHECK(line.resolved == to_json(line.config));
    CHECK(line.config_path == config);
    CHECK_FALSE(line.dry_run);
    CHECK_FALSE(line.resume);
    CHECK_FALSE(line.help);
    CHECK_FALSE(line.timing);
    CHECK_FALSE(line.oracle_step);
}

TEST_CASE_METHOD(Fixture, "flags win over the file") {
    const CommandLine line =
        run({"--training.steps", "100", "--device", "cpu", "--model.rope_theta=1e4", "--lr_schedule.decay_steps",
             "null", "--output.directory", "123", "--optimizer.moments", "bf16"});
    CHECK(line.config.training.steps == 100);
    CHECK(line.config.device == coda::DeviceChoice::cpu);
    CHECK(line.config.model.rope_theta == 1e4);
    CHECK_FALSE(line.config.lr_schedule.decay_steps);
    CHECK(line.config.output.directory == "123");
    CHECK(line.config.optimizer.moments == coda::Moments::bf16);
}

TEST_CASE_METHOD(Fixture, "a flag of a string that may be absent takes null") {
    CHECK_FALSE(run({}).config.data.tokenizer);
    CHECK(run({"--data.tokenizer", "t.json"}).config.data.tokenizer == "t.json");
    CHECK_FALSE(run({"--data.tokenizer", "t.json", "--data.tokenizer", "null"}).config.data.tokenizer);
    CHECK(run({"--data.tokenizer", "./null"}).config.data.tokenizer == "./null");
    CHECK(run({"--output.directory", "null"}).config.output.directory == "null");
    CHECK(lacking(error({"--data.tokenizer", ""}), {"--data.tokenizer: expected a non-empty string"}) == "");
}

TEST_CASE_METHOD(Fixture, "a repeated flag takes the last value, lists collect all") {
    CHECK(run({"--training.steps", "20", "--training.steps", "30"}).config.training.steps == 30);
    const CommandLine line =
        run({"--data.train", "a.bin", "b*.bin", "--training.steps", "20", "--data.train", "c.bin"});
    CHECK(line.config.data.train == std::vector<std::string>{"a.bin", "b*.bin", "c.bin"});
}

TEST_CASE_METHOD(Fixture, "globs in brackets stay whole") {
    const CommandLine line = run({"--data.train", "[ab]*[cd]", "[a,b]", "--data.val=[x]", "--output.directory", "[o]"});
    CHECK(line.config.data.train == std::vector<std::string>{"[ab]*[cd]", "[a,b]"});
    CHECK(line.config.data.val == std::vector<std::string>{"[x]"});
    CHECK(line.config.output.directory == "[o]");
}

TEST_CASE_METHOD(Fixture, "objects are JSON") {
    const CommandLine line = run({"--model.rope_scaling",
                                  R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                                      "original_max_position_embeddings": 16})"});
    REQUIRE(line.config.model.rope_scaling);
    CHECK(line.config.model.rope_scaling->factor == 8);
    CHECK(line.config.model.rope_scaling->original_max_position_embeddings == 16);
}

TEST_CASE_METHOD(Fixture, "modes") {
    const CommandLine line =
        run({"--dry-run", "--print-config", "--print-schedule", "--resume", "--eval", "--timing", "t.json", "--oracle",
             "3", "--export", "out", "--dump-batches", "b.bin", "--overwrite"});
    CHECK((line.dry_run && line.print_config && line.print_schedule && line.resume && line.eval));
    CHECK(line.timing == "t.json");
    CHECK(line.oracle_step == 3);
    CHECK(line.export_dir == "out");
    CHECK(line.dump_batches == "b.bin");
    CHECK(line.overwrite);
    CHECK_FALSE(line.version);
    CHECK(parse({"--version"}).version);
}

TEST_CASE_METHOD(Fixture, "the decoder of samples") {
    CHECK(run({"--samples.interval", "5"}).decoder.choice == DecoderChoice::passes);
    const CommandLine line = run({"--samples.interval", "5", "--decoder", "fused", "--watchdog", "0.25"});
    CHECK(line.decoder.choice == DecoderChoice::fused);
    CHECK(line.decoder.watchdog_seconds == 0.25);
    CHECK(run({"--samples.interval", "5", "--decoder", "auto"}).decoder.choice == DecoderChoice::automatic);
    CHECK(lacking(error({"--decoder", "fused"}), {"--decoder: goes with samples.interval"}) == "");
    CHECK(lacking(error({"--eval", "--samples.interval", "5", "--watchdog", "3"}), {"--watchdog: goes with"}) == "");
    CHECK(lacking(error({"--samples.interval", "5", "--decoder", "quick"}),
                  {"--decoder: expected auto, fused or passes", "quick"}) == "");
    CHECK(lacking(error({"--samples.interval", "5", "--watchdog", "0"}), {"--watchdog: expected a number"}) == "");
}

TEST_CASE_METHOD(Fixture, "a flag that is gone names what takes its place") {
    CHECK(error({"--resume", "--sample", "9", "--prompt", "a"}) ==
          "--sample is coda_generate now: coda_generate --model RUN --tokens N --prompt TEXT");
    CHECK(lacking(error({"--sample=9"}), {"--sample is coda_generate now"}) == "");
    for (const char* flag : {"--prompt", "--prompt-tokens", "--tokenizer", "--temperature", "--top-k", "--top-p",
                             "--min-p", "--repetition-penalty", "--seed"}) {
        CHECK(lacking(error({flag, "1"}), {std::string(flag) + " is ", "coda_generate"}) == "");
    }
}

TEST_CASE("help lists every key with its default") {
    const std::string help = parse({"--help"}).help.value();
    for (const coda::Key& key : coda::schema()) CHECK(lacking(help, {"--" + key.path(), key.help}) == "");
    CHECK(lacking(help, {"(required)", "(default: 1337)", "(default: hidden_size / num_attention_heads)",
                         "lr_schedule:", "--oracle", "--init-from", "Exit codes"}) == "");
}

TEST_CASE_METHOD(Fixture, "bad flags are named") {
    CHECK(error({"--steps", "5"}) == "unknown flag --steps; the nearest known flag is --training.steps");
    CHECK(error({"--training.setps=5"}) == "unknown flag --training.setps; the nearest known flag is --training.steps");
    CHECK(error({"--dryrun"}) == "unknown flag --dryrun; the nearest known flag is --dry-run");
    CHECK(error({"stray"}) == "unexpected argument stray");
    CHECK(error({"--training.steps", "ten"}) ==
          "--training.steps: expected an integer in [0, 2147483647], found the string \"ten\"");
    CHECK(error({"--training.steps", "-1"}) == "--training.steps: expected an integer in [0, 2147483647], found -1");
    CHECK(error({"--training.steps"}) == "--training.steps: expected a value after the flag");
    CHECK(error({"--export", "--resume"}) == "--export: expected a value, found the flag --resume");
    CHECK(lacking(error({"--overwrite"}),
                  {"--overwrite: goes with --timing FILE, --tensor-stats FILE or --dump-batches"}) == "");
    CHECK(lacking(error({"--export", ""}), {"--export: expected a non-empty string"}) == "");
    CHECK(lacking(error({"--data.train", "a", "\xff"}), {"--data.train[1]: expected a non-empty string in UTF-8"}) ==
          "");
    CHECK(lacking(error({"--model.rope_scaling", "{\"rope_type\": \"dynamic\"}"}),
                  {"--model.rope_scaling.rope_type", "dynamic"}) == "");
    CHECK(lacking(error({"--model.rope_scaling", "{bad"}), {"--model.rope_scaling:1:2: "}) == "");
    CHECK(lacking(error({"--model.rope_scaling", "bad"}), {"--model.rope_scaling: expected an object"}) == "");
    CHECK(lacking(error({"--precision", R"({"count_interval": 1, "count_interval": 2})"}),
                  {R"(--precision: the key "count_interval" is given twice)"}) == "");
    CHECK(error({"--precision.bf16_last_layers", "3"}) ==
          R"(unknown flag --precision.bf16_last_layers; the parts of --precision are one JSON object: )"
          R"(--precision '{"bf16_last_layers": ...}')");
    CHECK(lacking(error({"--precision.margin", "3"}), {"--precision.margin is gone: it is 0 in every run"}) == "");
    CHECK(lacking(error({"--precision", R"({"margin": 3})"}), {"--precision.margin is gone: it is 0"}) == "");
    CHECK(run({"--precision", R"({"margin": 0})"}).config.precision == coda::PrecisionConfig::fp8());
    CHECK(lacking(error({"--deterministic", "false"}), {"--deterministic is gone: every run gives the same"}) == "");
    CHECK(error({"--model.rope_scaling.factor=8"}) ==
          R"(unknown flag --model.rope_scaling.factor; the parts of --model.rope_scaling are one JSON object: )"
          R"(--model.rope_scaling '{"factor": ...}')");
    for (const char* step : {"0", "11", "x"}) {
        CHECK(lacking(error({"--oracle", step}), {"--oracle: expected an integer in [1, 10]"}) == "");
    }
    CHECK(lacking(error({"--model.num_key_value_heads", "3"}),
                  {config + " with the flags: ", "model.num_key_value_heads 3"}) == "");
    CHECK(lacking(message_of<UsageError>([] { parse({}); }), {"--config FILE is required"}) == "");
}

TEST_CASE_METHOD(Fixture, "bad config files are named, with line and column for syntax") {
    const auto error_in = [&](const std::string& content) {
        const std::string file = folder.write("bad.json", content);
        const std::string message = message_of<UsageError>([&] { parse({"--config", file}); });
        return message.rfind(file, 0) == 0 ? message.substr(file.size()) : "no file in: " + message;
    };
    CHECK(lacking(error_in("{\n  \"model\": {,\n}"), {":2:13: ", "syntax error"}) == "");
    CHECK(lacking(error_in(""), {":1:1: "}) == "");
    CHECK(lacking(error_in("{} // comment"), {":1:4: "}) == "");
    CHECK(lacking(error_in("{\"device\": \"\xff\"}"), {":1:13: "}) == "");
    CHECK(error_in(R"({"device": "cpu", "device": "cuda"})") == ": the key \"device\" is given twice");
    CHECK(error_in(std::string("{}\n\0{}", 6)) == ":2:1: a NUL byte, which is no JSON");
    CHECK(lacking(error_in(R"({"training": {"max_grad_norm": 1e999}})"), {": ", "1e999"}) == "");
    CHECK(lacking(error_in(std::string(100000, '[')), {": nested more than 64 deep"}) == "");
    CHECK(error_in(R"({"devise": 1})") == ": unknown key devise; the nearest known key is device");
    CHECK(lacking(error_in("{}"), {": missing keys model.hidden_size"}) == "");
    CHECK(lacking(error_in("[]"), {": expected an object"}) == "");

    const std::string absent = folder.path() + "/absent.json";
    CHECK(lacking(message_of<UsageError>([&] { parse({"--config", absent}); }), {absent, "cannot be opened"}) == "");
    CHECK(lacking(message_of<UsageError>([&] { parse({"--config", folder.path()}); }), {"is a folder"}) == "");
    const std::string pipe = folder.path() + "/pipe.json";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(lacking(message_of<UsageError>([&] { parse({"--config", pipe}); }), {pipe, "is a FIFO"}) == "");
}

TEST_CASE_METHOD(Fixture, "the flag --init-from gives the model section") {
    folder.write("config.json", hf_config().dump());
    json document = coda::test::small_document();
    document.erase("model");
    config = folder.write("small.json", document.dump());
    CHECK(lacking(error({}), {"missing keys model.hidden_size"}) == "");

    const CommandLine line = run({"--init-from", folder.path()});
    CHECK(line.init_from == folder.path());
    CHECK(line.config.model.hidden_size == 64);
    CHECK(line.config.model.num_key_value_heads == 2);
    CHECK(line.config.model.rope_theta == 10000);
    CHECK(line.config.model.max_position_embeddings == 64);
    CHECK(line.config.model.tie_word_embeddings);
    CHECK(run({"--init-from", folder.path(), "--model.bos_token_id", "7"}).config.model.bos_token_id == 7);
}

TEST_CASE_METHOD(Fixture, "the flag --init-from: model keys given elsewhere must agree") {
    const std::string file = folder.write("config.json", hf_config().dump());
    CHECK(run({"--init-from", folder.path()}).config.model.num_key_value_heads == 2);
    CHECK(run({"--init-from", folder.path(), "--model.rope_theta", "10000"}).config.model.rope_theta == 10000);
    CHECK(error({"--init-from", folder.path(), "--model.rope_theta", "500000"}) ==
          "model.rope_theta: --model.rope_theta gives 500000.0, but " + file +
              " gives 10000.0; leave it out or make them agree");
    CHECK(lacking(error({"--init-from", folder.path(), "--model.rope_thet", "1"}),
                  {"unknown flag --model.rope_thet"}) == "");

    json document = coda::test::small_document();
    document["model"]["hidden_size"] = 128;
    config = folder.write("small.json", document.dump());
    CHECK(error({"--init-from", folder.path()}) ==
          "model.hidden_size: " + config + " gives 128, but " + file + " gives 64; leave it out or make them agree");
    document["model"]["hidden_size"] = 64;
    document["model"]["head_dim"] = nullptr;  // absent, so no conflict
    config = folder.write("small.json", document.dump());
    CHECK(run({"--init-from", folder.path()}).config.model.head_dim == 16);
    document["model"]["head_dim"] = 32;
    config = folder.write("small.json", document.dump());
    CHECK(lacking(error({"--init-from", folder.path()}), {"model.head_dim", "gives 32", "gives 16"}) == "");
}

TEST_CASE_METHOD(Fixture, "the flag --init-from: a bad folder is a run-time error, not one of usage") {
    const auto error_kind = [&] {
        const auto action = [&] { run({"--init-from", folder.path()}); };
        CHECK(message_of<UsageError>([&] {
                  try {
                      action();
                  } catch (const UsageError&) {
                      throw;
                  } catch (const Error&) {
                  }
              }) == "");
        return message_of<Error>(action);
    };
    CHECK(lacking(error_kind(), {folder.path() + "/config.json: cannot be opened"}) == "");
    json hf = hf_config();
    hf["model_type"] = "gemma3";
    folder.write("config.json", hf.dump());
    CHECK(lacking(error_kind(), {folder.path() + "/config.json: model_type is the string \"gemma3\""}) == "");
}

TEST_CASE("the command is quoted for a shell") {
    CHECK(coda::quote("--training.steps") == "--training.steps");
    CHECK(coda::quote("") == "''");
    CHECK(coda::quote("data/*.bin") == "'data/*.bin'");
    CHECK(coda::quote("it's") == R"('it'\''s')");
    CHECK(coda::quote("a\nb'\\") == R"($'a\x0ab\'\\')");
    CHECK(coda::quote("\xff") == R"($'\xff')");
    CHECK(coda::quote("\xc3\xa9") == "'\xc3\xa9'");
    const char* argv[] = {"coda_train", "--config", "my config.json"};
    CHECK(coda::quote_command(3, argv) == "coda_train --config 'my config.json'");
}
