// How parameters are divided: every element is some rank's, or shared by all, in parts that are equal and aligned.
#include "src/model/division.h"

#include "src/config/shipped.h"
#include "tests/catch.h"
#include "tests/tiny_model.h"

using namespace coda;
using namespace coda::test;

namespace {

/// The ranks that have each element of the model.
std::vector<int> owners(const ParameterLayout& layout, int ranks) {
    std::vector<int> owners(static_cast<std::size_t>(layout.count), 0);
    for (int rank = 0; rank < ranks; ++rank) {
        const Division division(layout, rank, ranks);
        std::int64_t at = 0;
        for (const OwnRange& range : division.own()) {
            REQUIRE(range.at == at);
            at += range.count;
            for (std::int64_t i = 0; i < range.count; ++i) ++owners[static_cast<std::size_t>(range.first + i)];
        }
        REQUIRE(division.own_count() == at);
    }
    return owners;
}

}  // namespace

TEST_CASE("one rank has everything where the model has it") {
    const ParameterLayout layout = parameter_layout(tiny_model());
    const Division division(layout, 0, 1);
    CHECK(!division.divides());
    CHECK(division.buckets().empty());
    CHECK(division.own_count() == layout.count);
    CHECK(division.place_of(0, layout.count) == 0);
}

TEST_CASE("every element is one rank's or everyone's") {
    for (const bool tied : {false, true})
        for (const int ranks : {2, 3, 4, 8}) {
            ModelConfig model = tiny_model();
            model.tie_word_embeddings = tied;
            INFO("tied " << tied << ", ranks " << ranks);
            const ParameterLayout layout = parameter_layout(model);
            const std::vector<int> found = owners(layout, ranks);
            const Division division(layout, 0, ranks);
            std::vector<int> expected(found.size(), 1);
            for (const ElementRange& range : division.shared())
                for (std::int64_t i = range.first; i < range.end(); ++i) expected[static_cast<std::size_t>(i)] = ranks;
            CHECK((found == expected));
            CHECK(division.shared().back().first == layout.matrix_count);
            CHECK(division.shared().back().end() == layout.count);

            std::int64_t largest = 0;
            for (const Bucket& bucket : division.buckets()) {
                CHECK(bucket.part % kPartUnit == 0);
                largest = std::max(largest, bucket.part);
                // All of its elements become final together: it lies in the matrices of one layer, or in one matrix.
                int layer = -2;
                for (const WeightMatrix& matrix : layout.matrices) {
                    const std::int64_t first = matrix.place.offset, end = first + matrix.place.count();
                    if (first >= bucket.first + ranks * bucket.part || end <= bucket.first) continue;
                    CHECK((layer == -2 || (layer >= 0 && matrix.layer == layer)));
                    layer = matrix.layer;
                }
            }
            CHECK(largest == division.largest_part());
        }
}

TEST_CASE("shipped models are divided without a rest, and no bucket is larger than a layer") {
    for (const int ranks : {2, 4, 8}) {
        const ParameterLayout layout = parameter_layout(llama1b_untied());
        const Division division(layout, ranks - 1, ranks);
        CHECK(division.shared().size() == 1);
        std::int64_t layer = 0;
        for (const WeightMatrix& matrix : layout.matrices)
            if (matrix.layer == 0) layer += matrix.place.count();
        CHECK(division.largest_part() * ranks == layer);
        CHECK(division.own_count() == layout.matrix_count / ranks + (layout.count - layout.matrix_count));
    }
}

TEST_CASE("a place of another rank's elements, and a model too small to divide, are refused") {
    const ParameterLayout layout = parameter_layout(tiny_model());
    const Division division(layout, 0, 2);
    const Bucket bucket = division.buckets().front();
    CHECK(division.place_of(bucket.first, bucket.part) == 0);
    CHECK_THROWS_WITH(division.place_of(bucket.first + bucket.part, 1), Catch::Contains("are another rank's"));
    CHECK_THROWS_WITH(division.place_of(bucket.first, bucket.part + 1), Catch::Contains("are another rank's"));
    CHECK_THROWS_WITH(Division(layout, 0, 100), Catch::Contains("too few for 100 ranks: a layer needs at least 6400"));
    CHECK_THROWS_WITH(Division(layout, 2, 2), "rank 2 of 2 does not exist");
}
