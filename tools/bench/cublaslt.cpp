#include "tools/bench/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/hopper/sm90/check.h"

namespace coda::bench {

namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;
constexpr int kCandidates = 8;
constexpr int kTrials = 3;

void check(cublasStatus_t status, const char* call) {
    require(status == CUBLAS_STATUS_SUCCESS, call, " failed: cuBLAS status ", static_cast<int>(status));
}

}  // namespace

struct CublasLt::Api {
    void* library = nullptr;
    cublasLtHandle_t handle = nullptr;
    void* workspace = nullptr;
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtDestroy) destroy = nullptr;
    decltype(&cublasLtMatmul) matmul = nullptr;
    decltype(&cublasLtMatmulDescCreate) operation_create = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) operation_set = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;

    template <class Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(dlsym(library, name));
        require(function != nullptr, "libcublasLt has no ", name);
    }
};

CublasLt::CublasLt() : api_(std::make_unique<Api>()) {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
        if (api_->library == nullptr) api_->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    require(
        api_->library != nullptr,
        "cannot load libcublasLt.so.13 or .12, which the comparison needs: install the CUDA toolkit's cuBLAS or add "
        "its folder to LD_LIBRARY_PATH");
    api_->find(api_->create, "cublasLtCreate");
    api_->find(api_->destroy, "cublasLtDestroy");
    api_->find(api_->matmul, "cublasLtMatmul");
    api_->find(api_->operation_create, "cublasLtMatmulDescCreate");
    api_->find(api_->operation_set, "cublasLtMatmulDescSetAttribute");
    api_->find(api_->layout_create, "cublasLtMatrixLayoutCreate");
    api_->find(api_->preference_create, "cublasLtMatmulPreferenceCreate");
    api_->find(api_->preference_set, "cublasLtMatmulPreferenceSetAttribute");
    api_->find(api_->heuristic, "cublasLtMatmulAlgoGetHeuristic");
    check(api_->create(&api_->handle), "cublasLtCreate");
    CUDA_CHECK(cudaMalloc(&api_->workspace, kWorkspace));
}

CublasLt::~CublasLt() {
    if (api_->handle != nullptr) api_->destroy(api_->handle);
    cudaFree(api_->workspace);
}

hopper::Launch CublasLt::product(const GemmCase& made, const Memory& memory, void* out) {
    Api& api = *api_;
    // Column-major cuBLAS computes outᵀ (N x M) = op(b) op(a): its first operand is b.
    const auto transpose = [](hopper::Major major) { return major == hopper::Major::k; };
    const cublasOperation_t first = transpose(made.major_b) ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = transpose(made.major_a) ? CUBLAS_OP_N : CUBLAS_OP_T;

    cublasLtMatmulDesc_t operation = nullptr;
    check(api.operation_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    check(api.operation_set(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "TRANSA");
    check(api.operation_set(operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second), "TRANSB");
    const auto layout = [&](const View& view) {
        cublasLtMatrixLayout_t made_layout = nullptr;
        check(api.layout_create(&made_layout, CUDA_R_16BF, static_cast<std::uint64_t>(view.cols),
                                static_cast<std::uint64_t>(view.rows), view.ld),
              "cublasLtMatrixLayoutCreate");
        return made_layout;
    };
    const cublasLtMatrixLayout_t layout_b = layout(made.b), layout_a = layout(made.a);
    cublasLtMatrixLayout_t layout_out = nullptr;
    check(api.layout_create(&layout_out, made.f32_out ? CUDA_R_32F : CUDA_R_16BF,
                            static_cast<std::uint64_t>(made.shape.n), static_cast<std::uint64_t>(made.shape.m),
                            made.shape.n),
          "cublasLtMatrixLayoutCreate");

    cublasLtMatmulPreference_t preference = nullptr;
    check(api.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    check(api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace),
          "MAX_WORKSPACE_BYTES");
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int found = 0;
    check(api.heuristic(api.handle, operation, layout_b, layout_a, layout_out, layout_out, preference, kCandidates,
                        results.data(), &found),
          "cublasLtMatmulAlgoGetHeuristic");
    require(found > 0, "cuBLASLt has no algorithm for this product");

    const void* a = memory.address(made.a);
    const void* b = memory.address(made.b);
    const auto run = [=, &api](const cublasLtMatmulAlgo_t& algorithm, hopper::Stream stream) {
        const float one = 1, zero = 0;
        check(api.matmul(api.handle, operation, &one, b, layout_b, a, layout_a, &zero, out, layout_out, out, layout_out,
                         &algorithm, api.workspace, kWorkspace, stream),
              "cublasLtMatmul");
    };
    cudaEvent_t begin = nullptr, end = nullptr;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    cublasLtMatmulAlgo_t best{};
    float best_time = 0;
    for (int i = 0; i < found; ++i) {
        const cublasLtMatmulAlgo_t& algorithm = results[static_cast<std::size_t>(i)].algo;
        run(algorithm, nullptr);
        CUDA_CHECK(cudaEventRecord(begin));
        for (int trial = 0; trial < kTrials; ++trial) run(algorithm, nullptr);
        CUDA_CHECK(cudaEventRecord(end));
        CUDA_CHECK(cudaEventSynchronize(end));
        float time = 0;
        CUDA_CHECK(cudaEventElapsedTime(&time, begin, end));
        if (i == 0 || time < best_time) {
            best = algorithm;
            best_time = time;
        }
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    return [run, best](hopper::Stream stream) { run(best, stream); };
}

}  // namespace coda::bench
