// Every tile configuration of every GEMM program, whichever one the program would choose itself; and what surrounds a
// launch: graphs, and starting while the predecessor finishes.
#include <algorithm>

#include "tests/hopper/gemm_check.h"

using namespace coda;
using namespace coda::test;

namespace {

std::vector<hopper::TileConfig> tiles_of(const Shape& shape, const CaseOptions& options = {}) {
    return hopper::choose(cases::make_case(shape, options).op).candidates;
}

}  // namespace

TEST_CASE("every tile configuration of every program agrees with the CPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const auto& [program, make, columns, gradient] : cases::all_programs())
        for (const bool accumulate : {false, true}) {
            // Slightly more than a multiple of any cluster's rows and columns, and a K tail.
            const Shape ragged{program, 776, columns == 128 ? 640 : 656, 200};
            const Shape small{program, 8, columns == 8 ? 136 : columns == 16 ? 144 : 128, 72};
            const CaseOptions options{.accumulate = accumulate, .optionals = accumulate};
            const auto tiles = tiles_of(ragged, options);
            REQUIRE(!tiles.empty());
            for (std::size_t i = 0; i < tiles.size(); ++i) {
                hopper::Request choice;
                choice.candidate = static_cast<int>(i);
                check(ragged, options, choice);
                check(small, options, choice);
                // Several tiles per block, and rounds of every ring.
                check({program, 2560, 1920, 320}, options, choice);
            }
        }
}

// The partials of LinearResidualRms then have 192 columns too. A layer's dgrad accumulates and makes no optional
// result, the head's overwrites and makes them: kernels apart, so the two flags are independent.
TEST_CASE("programs agree with the CPU where 192 divides N and 128 does not", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : {"LinearResidualRms", "LinearRmsBackward", "LinearRmsBackward bias",
                                "LinearRmsBackward no norm", "LinearHeadDot"})
        for (const bool accumulate : {false, true})
            for (const bool optionals : {false, true}) {
                const CaseOptions options{.accumulate = accumulate, .optionals = optionals};
                const Shape few{program, 776, 576, 208};
                // Three tiles of one consumer and two of the other, the last one ragged: turns, and rings and sums that
                // are used again.
                const Shape many{program, 65 * 256 + 8, 960, 320};
                const auto tiles = tiles_of(few, options);
                REQUIRE(std::any_of(tiles.begin(), tiles.end(), [](const auto& tile) { return tile.n == 192; }));
                for (std::size_t i = 0; i < tiles.size(); ++i) {
                    hopper::Request choice;
                    choice.candidate = static_cast<int>(i);
                    check(few, options, choice);
                    if (tiles[i].n != 192) continue;
                    const GemmCase made = cases::make_case(many, options);
                    if (const auto* op = std::get_if<LinearResidualRms>(&made.op)) REQUIRE(op->tile == 192);
                    check_case(made, options, choice);
                }
            }
}

TEST_CASE("weight gradients in parts agree with the CPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const bool accumulate : {false, true})
        for (const Shape& shape : {Shape{"WeightGradient", 264, 136, 4100}, Shape{"WeightGradient", 768, 768, 8192},
                                   Shape{"WeightGradient", 8, 2048, 2000}, Shape{"WeightGradient", 1024, 1024, 8192},
                                   Shape{"WeightGradient", 960, 576, 8192}, Shape{"WeightGradient", 576, 1536, 8192}}) {
            const CaseOptions options{.accumulate = accumulate, .optionals = accumulate};
            const GemmCase made = cases::make_case(shape, options);
            REQUIRE(std::get<WeightGradient>(made.op).parts() > 1);
            check(shape, options);
            CaseOptions exact = options;
            exact.integers = true;
            check(shape, exact);
        }
}

TEST_CASE("weight gradients in parts agree with the CPU in every tile, with any number of parts", "[gpu]") {
    if (!has_hopper()) return;
    // 576 rows and 960 columns are whole tiles of some configurations and ragged ones of others.
    for (const Shape& shape : {Shape{"WeightGradient", 576, 960, 8200}, Shape{"WeightGradient", 960, 576, 8192}}) {
        const CaseOptions exact{.integers = true, .accumulate = shape.m == 960, .optionals = true};
        const auto tiles = tiles_of(shape, exact);
        REQUIRE(tiles.size() == 3);
        for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
            hopper::Request choice;
            choice.candidate = static_cast<int>(tile);
            REQUIRE(hopper::choose(cases::make_case(shape, exact).op, choice).splits > 1);
            check(shape, exact, choice);
            for (choice.splits = 1; choice.splits <= 3; ++choice.splits) check(shape, exact, choice);
        }
    }
}

TEST_CASE("every order of tiles gives the same bits", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : {"Linear", "LinearResidualRms", "LinearRmsBackward"}) {
        const GemmCase made = cases::make_case({program, 1600, 1408, 256});
        Bytes first;
        for (const hopper::Raster& raster :
             {hopper::Raster{}, hopper::Raster{.group_rows = 512}, hopper::Raster{.group_columns = 512},
              hopper::Raster{.group_columns = 1024}}) {
            const cases::DeviceBuffers device(made.buffers, 5);
            hopper::Request choice;
            choice.raster = raster;
            hopper::prepare(made.op, device.memory(), choice)(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            Bytes bytes = download(made.buffers, device.memory());
            INFO(program << ", groups of " << raster.group_rows << " rows or " << raster.group_columns << " columns");
            if (first.empty()) {
                first = std::move(bytes);
            } else {
                CHECK(bytes == first);
            }
        }
    }
}

// A chain of GEMMs. The weight of each is the result of the one before it, and its own result overwrites what that one
// read. 72 tiles are one wave and six tiles: while those six are computed, most SMs are free for the next GEMM, which
// needs them at once. Runs in a stream and in a graph, with and without overlap.
TEST_CASE("a chain of dependent GEMMs runs in order", "[gpu]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kWidth = 1536;
    constexpr int kLength = 24;
    const GemmCase made = cases::make_case({"Linear", kWidth, kWidth, kWidth});
    const View first = made.buffers[0].view, scaled = made.buffers[1].view, out = made.buffers[2].view;
    Bytes results[4];
    for (int way = 0; way < 4; ++way) {
        const cases::DeviceBuffers device(made.buffers, 9);
        std::vector<hopper::Launch> chain;
        for (int link = 0; link < kLength; ++link) {
            Linear op = std::get<Linear>(made.op);
            op.a = scaled;  // N(0, 1 / K): results keep their size
            op.w = link % 2 == 0 ? first : out;
            op.out = {link % 2 == 0 ? out : first, Beta::overwrite};
            hopper::Request choice;
            choice.overlap = way % 2 == 1;
            chain.push_back(hopper::prepare(op, device.memory(), choice));
        }
        cudaStream_t stream = nullptr;
        CUDA_CHECK(cudaStreamCreate(&stream));
        if (way < 2) {
            for (const hopper::Launch& launch : chain) launch(stream);
        } else {
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t ready = nullptr;
            CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            for (const hopper::Launch& launch : chain) launch(stream);
            CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
            CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
            CUDA_CHECK(cudaGraphLaunch(ready, stream));
            CUDA_CHECK(cudaStreamSynchronize(stream));
            CUDA_CHECK(cudaGraphExecDestroy(ready));
            CUDA_CHECK(cudaGraphDestroy(graph));
        }
        CUDA_CHECK(cudaStreamSynchronize(stream));
        CUDA_CHECK(cudaStreamDestroy(stream));
        results[way] = download(made.buffers, device.memory());
        INFO("way " << way);
        CHECK(results[way] == results[0]);
    }
    // The chain did not vanish or overflow, so the comparison means something.
    const double last = std::fabs(element(results[0][0], first, 17, 23));
    CHECK((last > 0 && last < 1e3));
}
