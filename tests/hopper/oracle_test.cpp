// The oracle against the Hopper kernels: it agrees with right results, and names the operand of a wrong one.
//
// Its expected values are not rounded, so a stored tile is off by one bf16 rounding: at most 2^-9 relative, 1.7e-3 RMS
// for values spread evenly over a binade; 4e-3 as in the tests against the CPU. fp32 results: 1e-5 relative RMS, K 520.
#include "kernels/oracle/oracle.h"
#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"
#include "tools/bench/gemm_cases.h"

using namespace coda;
using namespace coda::test;
using bench::GemmCase;

namespace {

const char* const kPrograms[] = {"Linear",
                                 "LinearDgrad",
                                 "LinearF32",
                                 "WeightGradient",
                                 "LinearRstd",
                                 "LinearRope",
                                 "LinearRstdRope",
                                 "LinearSwiglu",
                                 "LinearRstdSwiglu",
                                 "LinearResidualRms",
                                 "LinearCrossEntropy",
                                 "LinearRstdCrossEntropy",
                                 "LinearRmsBackward",
                                 "LinearSwigluBackward",
                                 "LinearHeadDot"};

void agrees(oracle::Oracle& oracle, const std::vector<bench::Buffer>& buffers, const Op& op, const std::string& name) {
    const bench::DeviceBuffers device(buffers, 23);
    const auto before = oracle.capture(op, device.memory());
    hopper::prepare(op, device.memory())(nullptr);
    const auto report = oracle.check(op, device.memory(), before);
    CHECK(report.skipped.empty());

    std::size_t written = 0;
    for (const auto& buffer : buffers) written += buffer.access == Access::in ? 0 : 1;
    CHECK(report.operands.size() >= written);
    for (const auto& error : report.operands) {
        DType dtype = DType::bf16;  // an operand that shares a buffer is a storage matrix
        for (const auto& buffer : buffers)
            if (error.operand == buffer.name) dtype = buffer.view.dtype;
        INFO(name << " " << error.operand << ": rms " << error.rms << ", largest " << error.largest);
        // delta sums rounded values, so it inherits that rounding's ties.
        CHECK(error.rms <= (dtype == DType::bf16 || error.operand == "delta" ? 4e-3 : 1e-5));
    }

    // One element of each result made 4096: the oracle must name that operand and no other.
    for (const auto& buffer : buffers) {
        if (buffer.access == Access::in) continue;
        if (std::string(buffer.name) == "target_logit") continue;  // its first row may be ignored
        const auto size = static_cast<std::size_t>(size_of(buffer.view.dtype));
        const float wrong = 4096;
        std::byte* element = device.memory().address(buffer.view);
        std::vector<std::byte> original(size);
        CUDA_CHECK(cudaMemcpy(original.data(), element, size, cudaMemcpyDeviceToHost));
        // bf16 is the upper half of a float.
        CUDA_CHECK(cudaMemcpy(element, reinterpret_cast<const std::byte*>(&wrong) + sizeof wrong - size, size,
                              cudaMemcpyHostToDevice));
        const auto found = oracle.check(op, device.memory(), before);
        CUDA_CHECK(cudaMemcpy(element, original.data(), size, cudaMemcpyHostToDevice));
        for (std::size_t i = 0; i < found.operands.size(); ++i) {
            INFO(name << ": " << buffer.name << " was made wrong, " << found.operands[i].operand << " has "
                      << found.operands[i].rms);
            if (found.operands[i].operand == buffer.name)
                CHECK(found.operands[i].largest > report.operands[i].largest);
            else
                CHECK(found.operands[i].rms == report.operands[i].rms);
        }
    }
}

}  // namespace

TEST_CASE("the oracle agrees with every GEMM op", "[gpu]") {
    if (!has_hopper()) return;
    oracle::Oracle oracle;
    for (const char* program : kPrograms) {
        const bool heads =
            std::string(program).find("Rope") != std::string::npos || std::string(program) == "LinearHeadDot";
        for (const bool accumulate : {false, true}) {
            const GemmCase made = bench::make_case({program, 328, heads ? 768 : 784, 520},
                                                   {.accumulate = accumulate, .alpha = accumulate, .gap = 8});
            agrees(oracle, made.buffers, made.op, program);
        }
    }
}

TEST_CASE("the oracle checks a product in bands, and SwiGLU's backward pass in place", "[gpu]") {
    if (!has_hopper()) return;
    oracle::Oracle oracle;
    // More than the 256 MiB of one band: 2200 rows of 32064 columns; 1000 rows of 128 x 1024 columns in tiles of 64.
    const GemmCase loss = bench::make_case({"LinearRstdCrossEntropy", 2200, 32064, 72}, {.vocab = 32001});
    agrees(oracle, loss.buffers, loss.op, "LinearRstdCrossEntropy");
    const GemmCase norm = bench::make_case({"LinearRmsBackward", 1000, 131072, 72}, {.accumulate = true});
    agrees(oracle, norm.buffers, norm.op, "LinearRmsBackward");

    GemmCase swiglu = bench::make_case({"LinearSwigluBackward", 328, 784, 520});
    auto& op = std::get<LinearSwigluBackward>(swiglu.op);
    op.dz = View(op.z);
    for (auto& buffer : swiglu.buffers) {
        const std::string name = buffer.name;
        if (name == "dz") buffer.access = Access::in;  // nobody writes it now
        if (name == "z") {
            buffer.name = "dz";
            buffer.access = Access::inout;
        }
    }
    agrees(oracle, swiglu.buffers, swiglu.op, "LinearSwigluBackward in place");
}

TEST_CASE("the oracle runs other ops on the host", "[gpu]") {
    if (!has_hopper()) return;
    std::vector<bench::Buffer> buffers;
    const auto add = [&](const char* name, DType dtype, std::int64_t columns, bench::Fill fill, Access access) {
        const View view{static_cast<BufferId>(buffers.size()), dtype, 0, 1, columns, columns, 0};
        buffers.push_back({name, view, fill, 3, access});
        return view;
    };
    FinishColumnSum op;
    View partials = add("partials", DType::f32, 7 * 128, bench::Fill::positive, Access::in);
    partials.rows = 7;
    partials.cols = partials.ld = 128;
    op.partials = partials;
    op.grad = {add("grad", DType::f32, 128, bench::Fill::positive, Access::inout), Beta::accumulate};
    oracle::Oracle oracle;
    agrees(oracle, buffers, op, "FinishColumnSum");

    // Above the host budget an op is skipped, with the reason; an operand that was not captured is an error.
    const bench::DeviceBuffers device(buffers, 1);
    oracle::Oracle small(100);
    const auto before = small.capture(op, device.memory());
    CHECK(small.check(op, device.memory(), before).skipped.find("host budget") != std::string::npos);
    CHECK_THROWS_WITH(oracle.check(op, device.memory(), {}), Catch::Contains("grad was not captured"));
}
