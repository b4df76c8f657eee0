// The products of a consumer warp: chunks of weights times its slices of the inputs. Device.
#pragma once

#include "kernels/hopper/decode/exchange/panel.cuh"
#include "kernels/hopper/decode/plan/fragment.h"
#include "kernels/hopper/ptx/mbarrier.cuh"
#include "kernels/hopper/ptx/mma.cuh"

namespace coda::hopper::decode {

/// Four sums, so that an MMA need not wait for the one before. They are added in order at the end.
struct Sums {
    float of[4][4] = {};

    __device__ float total(int i) const { return of[0][i] + of[1][i] + of[2][i] + of[3][i]; }
};

/// Adds 16 rows times the lanes' columns of inputs; both in shared memory. Lanes whose column does not exist are not
/// `live`: it counts as 0. One warp; the loads of kUnroll blocks are on their way at a time.
template <int kUnroll = 2>
__device__ __forceinline__ void multiply(Sums& sums, const LaneRows& rows, const char* column, bool live, int blocks) {
    const auto load = [](const char* from) { return *reinterpret_cast<const uint4*>(from); };
#pragma unroll kUnroll
    for (int block = 0; block < blocks; ++block) {
        const char *first = rows.first + block * rows.block, *second = rows.second + block * rows.block;
        const char* input = column + block * kBlockRowBytes;
        const uint4 a = load(first), c = load(second), e = load(first + rows.far), g = load(second + rows.far);
        const uint4 b = live ? load(input) : uint4{}, d = live ? load(input + 16) : uint4{};
        ptx::mma_m16n8k16(sums.of[0], a.x, e.x, a.y, e.y, b.x, b.y);
        ptx::mma_m16n8k16(sums.of[1], a.z, e.z, a.w, e.w, b.z, b.w);
        ptx::mma_m16n8k16(sums.of[2], c.x, g.x, c.y, g.y, d.x, d.y);
        ptx::mma_m16n8k16(sums.of[3], c.z, g.z, c.w, g.w, d.z, d.w);
    }
}

/// What a consumer warp counts over the stages.
struct ConsumerCounts {
    std::uint32_t chunks = 0;  // of the SM
    int tiles = 0;             // of products: entries of the ring of parts that were used
    int units = 0;             // of attention
    std::uint32_t meetings = 0;
};

/// Waits for the n-th chunk.
__device__ __forceinline__ const char* take_chunk(const Self& self, std::uint32_t n, const Place& place) {
    // A warp may be further ahead of the ring than the parity of a barrier can tell.
    const std::uint32_t issued = ptx::shared_address(&self.state.issued);
    self.watch.wait_or_exit(place, Awaited::chunk, [=] { return ptx::load_shared_acquire(issued) > n; });
    const auto ring = static_cast<std::uint32_t>(self.layout().chunks);
    self.watch.wait_barrier(place, Awaited::chunk, &self.state.full[n % ring], n / ring & 1);
    return self.chunk(n);
}
__device__ __forceinline__ void free_chunk(const Self& self, std::uint32_t n) {
    __syncwarp();
    const auto ring = static_cast<std::uint32_t>(self.layout().chunks);
    if (self.lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&self.state.empty[n % ring]));
}

/// This warp's part of a tile's sums, and of the sums of squares, to the epilogue warps.
__device__ __forceinline__ void give_part(const Self& self, const Sums& sums, float square, int tile, int part,
                                          int parts, const Place& place) {
    const int entry = tile % self.layout().part_entries, round = tile / self.layout().part_entries;
    const int batch = self.shape().batch;
    // Tile - part_entries is of the same epilogue warp. A count, as the parity of a barrier could not tell rounds apart
    // in which this warp had no tile of this entry.
    if (round > 0) {
        const std::uint32_t read = ptx::shared_address(&self.state.parts_read[tile % kEpilogueWarps]);
        const auto needed = static_cast<std::uint32_t>((tile - self.layout().part_entries) / kEpilogueWarps);
        self.watch.wait_or_exit(place, Awaited::free_parts, [=] { return ptx::load_shared_acquire(read) > needed; });
    }
    float* to = self.part(entry, part);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int column = result_column(self.lane, i);
        if (column < batch) to[column * kTileRows + result_row(self.lane, i)] = sums.total(i);
    }
    if (self.lane < batch) to[kTileRows * batch + self.lane] = square;
    __syncwarp();
    if (self.lane == 0)
        ptx::mbarrier_arrive_many(ptx::shared_address(&self.state.part_full[entry]),
                                  static_cast<std::uint32_t>(kConsumerWarps / parts));
}

/// The lane's column of inputs exists, and counts.
__device__ __forceinline__ bool is_live(const Self& self, const Stage& stage) {
    return lane_row(self.lane) < self.shape().batch && has_input(self, stage, lane_row(self.lane));
}

/// The input comes in panels; but a token's row of the embedding is fetched from the table.
__device__ __forceinline__ bool comes_in_panels(const Self& self, const Stage& stage) {
    return self.panels && !(stage.embedded && stage.kind == StageKind::qkv);
}

/// A consumer warp's share of a product whose slices it keeps: it fetches them before the first tile.
__device__ __forceinline__ void multiply_kept(const Self& self, const Stage& stage, const Slices& slices,
                                              const Step& step, Place place, const ConsumerCounts& counts) {
    const OwnTiles own = self.tiles_of(stage);
    const int chunks = own.number * slices.number, rounds = slices.rounds(), batch = self.shape().batch;
    const int pitch = self.panels ? kInputPitch : input_pitch(rounds);
    const int apart = self.panels ? batch * kInputPitch : 2 * kSliceColumns;  // bytes from a slice to the warp's next
    const bool live = is_live(self, stage);
    char* input = self.input();
    float square = 0;
    // Before the sums, which would take registers from the loads.
    const bool fetches_panels = comes_in_panels(self, stage);
#pragma unroll 1
    for (int round = 0, m = self.warp; round < rounds && m < chunks; ++round, m += kConsumerWarps) {
        const ProductChunk chunk = product_chunk(slices, m);
        place.tile = own.tile(chunk.tile);
        if (fetches_panels)
            fetch_panel(self, stage, slices, chunk.slice, input + round * apart, place, round == 0);
        else
            square += SliceFetch(self, stage, slices, chunk.slice, input + round * apart, pitch, place).run(step);
    }
    __syncwarp();
    Sums sums;
    int done = 0;  // slices of this warp so far
    for (int m = self.warp; m < chunks; m += kConsumerWarps, ++done) {
        const ProductChunk chunk = product_chunk(slices, m);
        const int round = done % rounds;
        place.tile = own.tile(chunk.tile);
        if (round == 0) sums = {};
        self.stamp(place, Stamp::ready);
        const std::uint32_t n = counts.chunks + static_cast<std::uint32_t>(m);
        const char* weights = take_chunk(self, n, place);
        const char* slice = input + round * apart;
        multiply(sums, rows_of_chunk(weights, self.lane),
                 slice + lane_row(self.lane) * pitch + 2 * lane_column(self.lane), live, slices.blocks_of(chunk.slice));
        free_chunk(self, n);
        // The squares of panels come now, after the chunk is free: nobody needs them before the first tile's parts.
        if (fetches_panels && done < rounds && has_norm(stage.kind))
            square += panel_squares(self, slice, slices.columns_of(chunk.slice, stage.columns));
        if (round == rounds - 1)
            give_part(self, sums, square, counts.tiles + chunk.tile, chunk.slice % slices.parts(), slices.parts(),
                      place);
    }
}

/// The same where its slices do not fit: each is fetched once for kTilesTogether tiles. There are as many parts of a
/// tile as warps then.
__device__ __forceinline__ void multiply_fetched(const Self& self, const Stage& stage, const Slices& slices,
                                                 const Step& step, Place place, const ConsumerCounts& counts) {
    const OwnTiles own = self.tiles_of(stage);
    const int pitch = self.panels ? kInputPitch : input_pitch(1);
    const bool live = is_live(self, stage), fetches_panels = comes_in_panels(self, stage);
    char* input = self.input();
    std::uint32_t n = counts.chunks + static_cast<std::uint32_t>(self.warp);
#pragma unroll 1
    for (int first = 0; first < own.number; first += kTilesTogether) {
        Sums sums[kTilesTogether];
        float square = 0;
#pragma unroll 1
        for (int slice = self.warp; slice < slices.number; slice += kConsumerWarps) {
            place.tile = own.tile(first);
            __syncwarp();  // all lanes have used what is there
            if (fetches_panels)
                fetch_panel(self, stage, slices, slice, input, place, first == 0 && slice == self.warp);
            else
                square += SliceFetch(self, stage, slices, slice, input, pitch, place).run(step);
            __syncwarp();
            self.stamp(place, Stamp::ready);
#pragma unroll
            for (int t = 0; t < kTilesTogether; ++t) {
                if (first + t >= own.number) continue;
                place.tile = own.tile(first + t);
                const char* weights = take_chunk(self, n, place);
                multiply(sums[t], rows_of_chunk(weights, self.lane),
                         input + lane_row(self.lane) * pitch + 2 * lane_column(self.lane), live,
                         slices.blocks_of(slice));
                free_chunk(self, n);
                n += kConsumerWarps;
            }
            if (fetches_panels && has_norm(stage.kind))
                square += panel_squares(self, input, slices.columns_of(slice, stage.columns));
        }
#pragma unroll
        for (int t = 0; t < kTilesTogether; ++t) {
            if (first + t >= own.number) continue;
            place.tile = own.tile(first + t);
            give_part(self, sums[t], square, counts.tiles + first + t, self.warp, kConsumerWarps, place);
        }
    }
}

/// A consumer warp's share of a product.
__device__ __forceinline__ void multiply_stage(const Self& self, const Stage& stage, const Step& step,
                                               const Place& place, ConsumerCounts& counts) {
    const Slices slices = slices_of(stage.columns);
    if (self.panels && stage.kind == StageKind::attn_out && !stage.embedded) await_arrivals(self, place);
    if (resident_slices(slices, self.shape().batch) > 0)
        multiply_kept(self, stage, slices, step, place, counts);
    else
        multiply_fetched(self, stage, slices, step, place, counts);
    const int tiles = self.tiles_of(stage).number;
    counts.chunks += static_cast<std::uint32_t>(tiles * slices.number);
    counts.tiles += tiles;
}

}  // namespace coda::hopper::decode
