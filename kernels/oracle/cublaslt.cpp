#include "kernels/oracle/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <vector>

#include "kernels/hopper/sm90/check.h"

namespace coda::oracle {

namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;
constexpr int kTrials = 3;

void check(cublasStatus_t status, const char* call) {
    require(status == CUBLAS_STATUS_SUCCESS, call, " failed: cuBLAS status ", static_cast<int>(status));
}

cudaDataType_t type_of(DType dtype) {
    switch (dtype) {
        case DType::f32: return CUDA_R_32F;
        case DType::bf16: return CUDA_R_16BF;
        case DType::f8e4m3: return CUDA_R_8F_E4M3;
        case DType::f8e5m2: return CUDA_R_8F_E5M2;
        default: throw Error(text("cuBLASLt is not used for ", name_of(dtype)));
    }
}

/// The largest power of two up to 256 that divides an address: cuBLASLt assumes 256 unless it is told otherwise.
std::uint32_t alignment_of(const void* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
    return static_cast<std::uint32_t>(bits & (~bits + 1));
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
    decltype(&cublasLtMatmulDescDestroy) operation_destroy = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) operation_set = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
    std::map<std::vector<std::int64_t>, cublasLtMatmulAlgo_t> fastest;  // of timed GEMMs, by shape and layout

    Api();
    ~Api();
    Api(const Api&) = delete;
    Api& operator=(const Api&) = delete;

    template <class Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(dlsym(library, name));
        require(function != nullptr, "libcublasLt has no ", name);
    }
};

CublasLt::Api::Api() {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
        if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    require(library != nullptr,
            "cannot load libcublasLt.so.13 or .12, which the comparison needs: install the CUDA toolkit's cuBLAS or "
            "add its folder to LD_LIBRARY_PATH");
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(matmul, "cublasLtMatmul");
    find(operation_create, "cublasLtMatmulDescCreate");
    find(operation_destroy, "cublasLtMatmulDescDestroy");
    find(operation_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    check(create(&handle), "cublasLtCreate");
    CUDA_CHECK(cudaMalloc(&workspace, kWorkspace));
}

CublasLt::Api::~Api() {
    if (handle != nullptr) destroy(handle);
    cudaFree(workspace);
}

CublasLt::CublasLt() : api_(std::make_shared<Api>()) {}
CublasLt::~CublasLt() = default;

hopper::Launch CublasLt::product(const Product& product, int candidates) {
    const std::shared_ptr<Api> api = api_;
    const auto layout_of = [&](DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
        cublasLtMatrixLayout_t layout = nullptr;
        check(api->layout_create(&layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(columns), ld),
              "cublasLtMatrixLayoutCreate");
        return std::shared_ptr<cublasLtMatrixLayoutOpaque_t>(layout, api->layout_destroy);
    };
    // cuBLAS is column-major and computes outᵀ (n, m) = op(b) op(a): its first operand is b, and it sees the transpose
    // of a row-major matrix.
    const auto operand = [&](hopper::Major major, std::int64_t extent, std::int64_t ld) {
        return major == hopper::Major::k ? layout_of(product.in_dtype, product.k, extent, ld)
                                         : layout_of(product.in_dtype, extent, product.k, ld);
    };
    const auto first = operand(product.major_b, product.n, product.ldb);
    const auto second = operand(product.major_a, product.m, product.lda);
    const std::int64_t ld_out = product.ld_out == 0 ? product.n : product.ld_out;
    const auto result = layout_of(product.out_dtype, product.n, product.m, ld_out);

    cublasLtMatmulDesc_t made_operation = nullptr;
    check(api->operation_create(&made_operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const std::shared_ptr<cublasLtMatmulDescOpaque_t> operation(made_operation, api->operation_destroy);
    const cublasOperation_t transpose_first = product.major_b == hopper::Major::k ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t transpose_second = product.major_a == hopper::Major::k ? CUBLAS_OP_N : CUBLAS_OP_T;
    check(api->operation_set(operation.get(), CUBLASLT_MATMUL_DESC_TRANSA, &transpose_first, sizeof transpose_first),
          "TRANSA");
    check(api->operation_set(operation.get(), CUBLASLT_MATMUL_DESC_TRANSB, &transpose_second, sizeof transpose_second),
          "TRANSB");

    if (is_f8(product.in_dtype)) {
        const std::int8_t fast = product.fast_accumulation ? 1 : 0;
        check(api->operation_set(operation.get(), CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast), "FAST_ACCUM");
    }

    cublasLtMatmulPreference_t made_preference = nullptr;
    check(api->preference_create(&made_preference), "cublasLtMatmulPreferenceCreate");
    const std::shared_ptr<cublasLtMatmulPreferenceOpaque_t> preference(made_preference, api->preference_destroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
        check(api->preference_set(preference.get(), attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.out));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.out));
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(candidates));
    int found = 0;
    check(api->heuristic(api->handle, operation.get(), first.get(), second.get(), result.get(), result.get(),
                         preference.get(), candidates, results.data(), &found),
          "cublasLtMatmulAlgoGetHeuristic");
    require(found > 0, "cuBLASLt has no algorithm for a GEMM with M ", product.m, ", N ", product.n, ", K ", product.k);

    const auto run = [=](const cublasLtMatmulAlgo_t& algorithm, hopper::Stream stream) {
        const float one = 1, beta = product.beta == Beta::accumulate ? 1 : 0;
        check(api->matmul(api->handle, operation.get(), &one, product.b, first.get(), product.a, second.get(), &beta,
                          product.out, result.get(), product.out, result.get(), &algorithm, api->workspace, kWorkspace,
                          stream),
              "cublasLtMatmul");
    };
    cublasLtMatmulAlgo_t best = results[0].algo;
    const std::vector<std::int64_t> kind = {product.m,
                                            product.n,
                                            product.k,
                                            product.lda,
                                            product.ldb,
                                            ld_out,
                                            static_cast<std::int64_t>(product.major_a),
                                            static_cast<std::int64_t>(product.major_b),
                                            static_cast<std::int64_t>(product.in_dtype),
                                            static_cast<std::int64_t>(product.out_dtype),
                                            product.fast_accumulation ? 1 : 0,
                                            alignment_of(product.a),
                                            alignment_of(product.b),
                                            alignment_of(product.out),
                                            candidates};
    if (const auto known = api->fastest.find(kind); known != api->fastest.end()) {
        best = known->second;
    } else if (found > 1) {
        cudaEvent_t begin = nullptr, end = nullptr;
        CUDA_CHECK(cudaEventCreate(&begin));
        CUDA_CHECK(cudaEventCreate(&end));
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
        api->fastest.emplace(kind, best);
    }
    return [run, best](hopper::Stream stream) { run(best, stream); };
}

}  // namespace coda::oracle
