#include "tools/bench/gemm_tune.h"

#include <cstdio>
#include <string>

#include "kernels/core/error.h"

namespace coda::bench {

namespace {

using hopper::Raster;
using hopper::Request;
using hopper::TileConfig;

struct Variant {
    Request choice;
    TileConfig tile;
    std::int64_t parts;  // of K
    std::vector<hopper::Launch> launches;
};

std::string description(const Variant& variant) {
    const TileConfig& tile = variant.tile;
    const Raster raster = variant.choice.raster.value_or(tile.raster);
    const char* roles = tile.specialization == hopper::WarpSpecialization::pingpong ? "pingpong" : "cooperative";
    const std::string order = raster.group_columns > 0 ? text("groups of ", raster.group_columns, " columns")
                              : raster.group_rows > 0  ? text("groups of ", raster.group_rows, " rows")
                                                       : std::string("near squares");
    return text(roles, " ", tile.m, "x", tile.n, ", cluster ", tile.cluster_m, "x", tile.cluster_n, ", ", tile.stages,
                " stages, ", tile.slots, " slots, ", order,
                variant.parts > 1 ? text(", ", variant.parts, " parts of K") : "",
                variant.choice.overlap ? "" : ", no overlap of launches");
}

/// Measures and prints all; returns the index of the fastest.
std::size_t contest_of(const GemmCase& made, const Contest& contest, const std::vector<Variant>& variants,
                       const Turns& turns) {
    std::vector<std::vector<hopper::Launch>> sides;
    for (const Variant& variant : variants) sides.push_back(variant.launches);
    const std::vector<Measured> measured = contest.measure(sides, turns);
    std::size_t best = 0;
    for (std::size_t i = 0; i < variants.size(); ++i) {
        if (measured[i].ratio < measured[best].ratio) best = i;
        std::printf("  %8.4f ms  %6.1f TFLOP/s  %.3f of cuBLAS%s  %s\n", measured[i].ms,
                    made.flops() / measured[i].ms * 1e-9, measured[i].ratio, energy_column(measured[i]).c_str(),
                    description(variants[i]).c_str());
    }
    std::fflush(stdout);
    return best;
}

}  // namespace

void tune(const GemmCase& made, const Turns& turns, oracle::CublasLt& cublas) {
    const Shape& shape = made.shape;
    std::printf("%s %lld x %lld x %lld\n", shape.program.c_str(), static_cast<long long>(shape.m),
                static_cast<long long>(shape.n), static_cast<long long>(shape.k));
    const Contest contest(made, cublas);
    const std::vector<TileConfig> tiles = contest.tiles();
    std::vector<Variant> variants;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
        Request choice;
        choice.candidate = static_cast<int>(i);
        variants.push_back({choice, tiles[i], contest.parts(choice), contest.prepare(choice)});
    }
    contest.warm_up(variants.front().launches, turns);
    const Variant tile = variants[contest_of(made, contest, variants, turns)];

    variants = {tile};
    for (std::int64_t parts = 1; parts < tile.parts; ++parts) {
        Variant variant = tile;
        variant.choice.splits = variant.parts = parts;
        variant.launches = contest.prepare(variant.choice);
        variants.push_back(variant);
    }
    for (const Raster& order :
         {Raster{}, Raster{.group_rows = 1024}, Raster{.group_rows = 2048}, Raster{.group_rows = 4096},
          Raster{.group_columns = 1024}, Raster{.group_columns = 2048}, Raster{.group_columns = 4096}}) {
        Variant variant = tile;
        variant.choice.raster = order;
        variant.launches = contest.prepare(variant.choice);
        variants.push_back(variant);
    }
    variants.push_back(tile);
    variants.back().choice.overlap = false;
    variants.back().launches = contest.prepare(variants.back().choice);
    const Variant& best = variants[contest_of(made, contest, variants, turns)];
    std::printf("  fastest: %s\n", description(best).c_str());
    std::fflush(stdout);
}

}  // namespace coda::bench
