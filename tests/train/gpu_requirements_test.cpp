// Every lack of a machine and every shape of a model that the kernels do not take has a line of its own; a Hopper GPU
// under a driver that is new enough has none.
#include "src/train/gpu_requirements.h"

#include "src/train/hopper_executor.h"
#include "tests/catch.h"

using namespace coda;

namespace {

GpuFacts hopper() {
    return {.driver = 13000,
            .runtime = 12040,
            .answer = DriverAnswer::gpus,
            .failure = "",
            .name = "NVIDIA H200",
            .major = 9,
            .minor = 0};
}

std::string problem(const GpuFacts& facts) { return gpu_problem(facts).value_or(""); }

}  // namespace

TEST_CASE("a model that the Hopper kernels do not take is named by its key") {
    ModelConfig model;
    model.hidden_size = 64;
    model.intermediate_size = 128;
    model.head_dim = 64;
    model.num_hidden_layers = 127;
    CHECK(!hopper_model_problem(model));
    const auto says = [](const ModelConfig& other) { return hopper_model_problem(other).value_or(""); };
    ModelConfig other = model;
    other.num_hidden_layers = 128;
    CHECK_THAT(says(other), Catch::Contains("up to 127 layers, and model.num_hidden_layers is 128"));
    other = model;
    other.head_dim = 32;
    CHECK_THAT(says(other), Catch::Contains("heads of 64 or 128, and model.head_dim is 32"));
    other = model;
    other.hidden_size = 60;
    CHECK_THAT(says(other), Catch::Contains("a model.hidden_size that is a multiple of 8, and it is 60"));
    other = model;
    other.intermediate_size = 100;
    CHECK_THAT(says(other), Catch::Contains("a model.intermediate_size that is a multiple of 8, and it is 100"));
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
                                    "." + std::to_string(minor) +
                                    "; the kernels are for 9.0 alone (H100, H200, GH200)");
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
