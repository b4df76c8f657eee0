// Every lack of a machine and every shape of a model that the kernels do not take has a line of its own; a Hopper GPU
// under a driver that is new enough has none.
#include "src/engine/gpu_requirements.h"

#include <filesystem>
#include <fstream>

#include "kernels/core/limits.h"
#include "src/engine/gpu_presence.h"
#include "src/engine/hopper_executor.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"

using namespace coda;

namespace {

GpuFacts hopper() {
    GpuFacts facts;
    facts.driver = 13000;
    facts.runtime = 12040;
    facts.name = "NVIDIA H200";
    facts.major = 9;
    return facts;
}

std::string problem(const GpuFacts& facts) {
    const auto found = gpu_problem(facts);
    return found ? found->what : "";
}

/// The note of an automatic choice for a model that the kernels take.
std::string note(const GpuFacts& facts) { return why_not_gpu(gpu_problem(facts), std::nullopt); }

Config small_config() {
    Config config;
    config.model.hidden_size = 64;
    config.model.intermediate_size = 128;
    config.model.head_dim = 64;
    config.model.num_attention_heads = config.model.num_key_value_heads = 4;
    config.model.num_hidden_layers = 127;
    config.training.seq_len = 128;
    config.training.micro_batch_size = 1;
    return config;
}

std::string says(const Config& config, PassSet passes = passes_of(Mode::train)) {
    return hopper_problem(config, passes).value_or("");
}

}  // namespace

TEST_CASE("a model that the Hopper kernels do not take is named by its key") {
    CHECK(says(small_config()).empty());
    Config other = small_config();
    other.model.num_hidden_layers = 128;
    CHECK_THAT(says(other), Catch::Contains("up to 127 layers, and model.num_hidden_layers is 128"));
    other = small_config();
    other.model.head_dim = 32;
    CHECK_THAT(says(other), Catch::Contains("heads of 64 or 128, and model.head_dim is 32"));
    other = small_config();
    other.model.hidden_size = 60;
    CHECK_THAT(says(other), Catch::Contains("a model.hidden_size that is a multiple of 8, and it is 60"));
    other = small_config();
    other.model.intermediate_size = 100;
    CHECK_THAT(says(other), Catch::Contains("a model.intermediate_size that is a multiple of 8, and it is 100"));
}

TEST_CASE("a micro-batch that the Hopper kernels cannot count is named by its keys, in the passes that have it") {
    const PassSet training = passes_of(Mode::train), evaluation = passes_of(Mode::evaluate),
                  generation = passes_of(Mode::generate);
    Config config = small_config();
    // More than 2^20 tokens and 65535 sequences have no limit of their own.
    config.training.micro_batch_size = 70000;
    CHECK(says(config).empty());

    // 4 heads of 128 rows each.
    config.training.seq_len = 1;
    config.training.micro_batch_size = (std::int64_t{1} << 31) / 512 - 1;
    CHECK(says(config, training).empty());
    config.training.micro_batch_size += 1;
    CHECK_THAT(says(config, training), Catch::Contains("training.micro_batch_size x model.num_attention_heads x "
                                                       "training.seq_len in whole tiles is 2147483648"));
    CHECK(says(config, evaluation).empty());

    // 4 tiles of up to 192 rows per sequence.
    config.training.micro_batch_size = limits::kMaxTiles / 4;
    CHECK(says(config, evaluation).empty());
    config.training.micro_batch_size += 1;
    CHECK_THAT(says(config, evaluation), Catch::Contains("training.micro_batch_size x model.num_attention_heads x "
                                                         "tiles of training.seq_len is 2147418112"));
    CHECK(says(config, generation).empty());
    config.training.seq_len = 5;
    CHECK_THAT(says(config, evaluation), Catch::Contains("training.micro_batch_size x training.seq_len is 26842"));

    config = small_config();
    config.model.num_attention_heads = config.model.num_key_value_heads = 65536;
    CHECK_THAT(says(config), Catch::Contains("up to 65535 heads, and model.num_attention_heads is 65536"));
    CHECK(says(config, evaluation).empty());
}

TEST_CASE("a Hopper GPU has no problem") { CHECK(!gpu_problem(hopper())); }

TEST_CASE("a GPU of another compute capability is named, with what the kernels are for") {
    for (const auto& [name, major, minor] :
         {std::tuple{"NVIDIA A100-SXM4-80GB", 8, 0}, {"NVIDIA GeForce RTX 4090", 8, 9}, {"NVIDIA B200", 10, 0}}) {
        GpuFacts facts = hopper();
        facts.name = name;
        facts.major = major;
        facts.minor = minor;
        CHECK(problem(facts) == std::string("the GPU, ") + name + ", has compute capability " + std::to_string(major) +
                                    "." + std::to_string(minor) + "; the kernels are only for 9.0 (H100, H200, GH200)");
    }
}

TEST_CASE("no driver, an old driver, no GPU, a failure and an unresponsive GPU") {
    GpuFacts facts = hopper();
    facts.answer = DriverAnswer::too_old;
    facts.driver = 11080;
    CHECK(problem(facts) ==
          "the NVIDIA driver supports CUDA 11.8, older than this build's CUDA 12.4; update the driver");
    facts.answer = DriverAnswer::no_gpu;
    CHECK(problem(facts).find("no GPU that it may use") != std::string::npos);
    facts.answer = DriverAnswer::unresponsive;
    CHECK(problem(facts) == "the GPU does not answer (see nvidia-smi)");
    facts.answer = DriverAnswer::failed;
    facts.failure = "unknown error (cudaErrorUnknown)";
    CHECK(problem(facts) == "the GPU cannot be asked: unknown error (cudaErrorUnknown)");
    facts.driver = 0;  // before anything else
    CHECK(problem(facts) == "there is no NVIDIA driver on this machine (libcuda.so.1 was not found)");
}

TEST_CASE("the automatic choice says why it passes over a GPU that is here, and nothing without a GPU") {
    CHECK(note(hopper()).empty());
    CHECK(why_not_gpu(std::nullopt, "model.head_dim is 32") == "model.head_dim is 32");

    GpuFacts facts = hopper();
    facts.major = 8;
    CHECK_THAT(note(facts), Catch::StartsWith("the GPU, NVIDIA H200, has compute capability 8.0; "));
    facts.answer = DriverAnswer::unresponsive;
    CHECK(note(facts) == "the GPU does not answer (see nvidia-smi)");

    // The rest is asked of a driver, or of a build, that does not see GPUs.
    for (const DriverAnswer answer : {DriverAnswer::too_old, DriverAnswer::no_gpu, DriverAnswer::failed}) {
        facts = hopper();
        facts.answer = answer;
        CHECK(note(facts).empty());
        facts.sign = "/dev/nvidia0";
        CHECK(note(facts) == problem(facts));
        CHECK(!note(facts).empty());
    }
    facts = hopper();
    facts.sign = "/dev/nvidia0";
    facts.answer = DriverAnswer::no_gpu;
    CHECK(note(facts) == "there is an NVIDIA GPU (/dev/nvidia0) but none that the driver may use (see nvidia-smi)");
    facts.visible_devices = "-1";
    CHECK(note(facts) == "CUDA_VISIBLE_DEVICES=-1 hides the NVIDIA GPU of this machine (/dev/nvidia0)");

    facts = hopper();
    facts.driver = 0;
    CHECK(note(facts).empty());
    facts.sign = "PCI device 0000:3b:00.0";
    CHECK(note(facts) ==
          "there is no NVIDIA driver on this machine (libcuda.so.1 was not found), and there is an NVIDIA "
          "GPU (PCI device 0000:3b:00.0)");
    facts = hopper();
    facts.kernels = false;
    CHECK(note(facts).empty());
    facts.sign = "/dev/nvidia3";
    CHECK(note(facts) ==
          "this build has no kernels for a GPU (build the preset hopper, which needs nvcc >= 12.4), and "
          "there is an NVIDIA GPU (/dev/nvidia3)");
}

TEST_CASE("a GPU is known by its device node, or as a display controller of NVIDIA's on the bus") {
    const ScratchFolder root;
    const auto sign = [&] { return nvidia_gpu_sign(root.path()); };
    CHECK(sign().empty());
    const auto device = [&](const std::string& address, const std::string& vendor, const std::string& kind) {
        const std::filesystem::path folder = root.path() / "sys/bus/pci/devices" / address;
        std::filesystem::create_directories(folder);
        std::ofstream(folder / "vendor") << vendor << "\n";
        std::ofstream(folder / "class") << kind << "\n";
    };
    device("0000:00:02.0", "0x8086", "0x030000");  // a GPU of another vendor
    device("0000:01:00.1", "0x10de", "0x040300");  // sound of an NVIDIA card
    CHECK(sign().empty());
    device("0000:3b:00.0", "0x10de", "0x030200");
    CHECK(sign() == "PCI device 0000:3b:00.0");
    device("0000:01:00.0", "0x10de", "0x030000");
    CHECK(sign() == "PCI device 0000:01:00.0");
    std::filesystem::create_directories(root.path() / "dev");
    for (const char* node : {"nvidiactl", "nvidia-uvm", "nvidia", "null"}) std::ofstream(root.path() / "dev" / node);
    CHECK(sign() == "PCI device 0000:01:00.0");
    std::ofstream(root.path() / "dev/nvidia12");
    CHECK(sign() == "/dev/nvidia12");
}
