// The choice of a token from logits, shared by CPU and GPU: the same token on every machine, for any division of the
// vocabulary among threads.
//
// Everything that is compared or added is an integer: logits as keys of their order, probabilities as masses in units
// of 2^-40 of the largest one. Sums of integers do not depend on the order of the additions.
//
// Definition, in the order of transformers' logits processors. V tokens, ids 0 to V - 1, logits finite.
//   1. Repetition penalty r: the logit of a token that was seen in the sequence, prompt included, becomes l (1 / r)
//      where l > 0 and l r elsewhere. What leaves fp32 becomes its largest or lowest finite number.
//   2. Temperature T = 0: the token is the one of the largest logit, of equal ones the lowest id. Nothing else counts.
//      Else token i has the mass m_i = 2^40 exp((l_i - max l) / T), rounded down to an integer. A token of less than
//      2^-40 of the largest probability therefore never comes.
//   3. Top-k: tokens are ordered by logit, largest first, equal ones by id. The first k stay; 0, or k >= V: all.
//   4. Top-p: of those that stayed, the shortest beginning whose masses sum to at least p times the sum of all that
//      stayed; at least one. 1: all.
//   5. Min-p: of those that stayed, each whose mass is at least p times the largest, 2^40. The largest always stays.
//   6. With M the sum of the masses that are left, and u the number of (seed, position) in [0, 1), in units of 2^-53:
//      the token is the first, by id, at which the sum of the masses up to it exceeds floor(u M).
//
// Two things differ from transformers. Its top-k keeps every token that equals the k-th, and its top-p cuts equal ones
// where its sort left them; here exactly as many stay as the rule needs, the lowest ids first, so that top-k 1 is the
// greedy choice.
//
// Thresholds are searched by CutSearch, 8 bits of the key at a time: four histograms of 256 counts and masses, which
// threads or CTAs add up in any order.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/core/dtype.h"
#include "kernels/math/random.h"

namespace coda {

/// How the tokens of one sequence are chosen. Valid values: src/core/choice_options.h.
struct ChoiceOptions {
    float temperature = 1;         // 0: greedy
    std::int32_t top_k = 0;        // 0: all
    float top_p = 1;               // 0 to 1; 1: all
    float min_p = 0;               // 0 to 1; 0: all
    float repetition_penalty = 1;  // > 0; 1: none
    std::uint64_t seed = 1337;

    bool operator==(const ChoiceOptions&) const = default;
};

namespace sampling {

/// The mass of the largest logit.
inline constexpr std::uint64_t kOne = std::uint64_t{1} << 40;
/// The sum of this many masses stays below 2^63.
inline constexpr std::int64_t kLargestVocab = (std::int64_t{1} << 23) - 1;

/// The options as the formulas read them.
struct Rules {
    float penalty, inverse;  // of the penalty: 1 / it
    float scale;             // log2(e) / temperature
    bool greedy;             // the rest does not count
    std::uint64_t top_k;     // 0: all
    std::uint64_t top_p;     // in units of 2^-40; kOne: all
    std::uint64_t min_mass;  // the least mass that stays
};

CODA_HD Rules rules_of(const ChoiceOptions& options) {
    constexpr float kLog2E = 1.44269504f, kUnits = 0x1p40f;
    Rules rules{};
    rules.penalty = options.repetition_penalty;
    rules.inverse = 1 / options.repetition_penalty;
    rules.greedy = options.temperature == 0;
    // Finite even for the smallest temperature: 0 times it must be 0.
    rules.scale = rules.greedy ? 0 : std::fmin(kLog2E / options.temperature, std::numeric_limits<float>::max());
    rules.top_k = static_cast<std::uint64_t>(options.top_k);
    rules.top_p = static_cast<std::uint64_t>(options.top_p * kUnits);
    const float least = options.min_p * kUnits;
    rules.min_mass = static_cast<std::uint64_t>(least);
    rules.min_mass += static_cast<float>(rules.min_mass) < least;
    return rules;
}

/// The logit that counts: with the penalty where the token was `seen`, in the range of fp32, and never -0.
CODA_HD float penalised(float logit, bool seen, const Rules& rules) {
    constexpr float kLimit = std::numeric_limits<float>::max();
    if (!seen) return logit + 0.0f;
    // fma(x, y, 0) is x y that no compiler contracts with a later sum.
    const float value = std::fma(logit, logit > 0 ? rules.inverse : rules.penalty, 0.0f);
    return std::fmax(-kLimit, std::fmin(value, kLimit));
}

/// Unsigned integers in the order of finite floats.
CODA_HD std::uint32_t key_of(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    return word >> 31 != 0 ? ~word : word | 0x80000000u;
}

/// The float of a key.
CODA_HD float value_of(std::uint32_t key) { return std::bit_cast<float>(key >> 31 != 0 ? key & 0x7fffffffu : ~key); }

/// 2^40 2^-(distance scale), rounded down, of a distance >= 0 below the largest logit; kOne at 0.
///
/// With n the whole part of distance scale and f the rest, 2^-f comes from a polynomial: 2^(1-f) = 2 + Σ c_k f^k, whose
/// relative error in [0, 1] is 2^-26.1. Rounding adds 2^-24 in each of the last two steps, 2^-26, 2^-28, ... in those
/// before, and 2^-25 log 2 for f. So a mass is off by less than 3 2^-24 of itself, and by the rounding down. f is a
/// little below 0 where the product was rounded up to n.
CODA_HD std::uint64_t mass_of(float distance, float scale) {
    const float product = distance * scale;
    if (!(product < 41.0f)) return 0;
    const float whole = std::floor(product);
    const float f = std::fma(distance, scale, -whole);
    float sum = 0x1.c946d2p-13f;
    sum = std::fma(sum, f, -0x1.4e2aeap-9f);
    sum = std::fma(sum, f, 0x1.39e3fcp-6f);
    sum = std::fma(sum, f, -0x1.c6948ep-4f);
    sum = std::fma(sum, f, 0x1.ebfac0p-2f);
    sum = std::fma(sum, f, -0x1.62e42cp+0f);
    sum = std::fma(sum, f, 2.0f);
    const auto bits = static_cast<std::uint64_t>(sum * 0x1p23f);  // a whole number of up to 2^24, and a little more
    return (bits << 16) >> static_cast<int>(whole);
}

/// a b as two words.
struct Product {
    std::uint64_t high, low;
};
CODA_HD Product product_of(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    const std::uint64_t low = a0 * b0;
    const std::uint64_t middle = a1 * b0 + (low >> 32);
    const std::uint64_t other = a0 * b1 + (middle & 0xffffffffu);
    return {a1 * b1 + (middle >> 32) + (other >> 32), (other << 32) | (low & 0xffffffffu)};
}

/// The least sum of masses that is at least top_p of `total` < 2^63; at least 1. `top_p` < kOne.
CODA_HD std::uint64_t target_of(std::uint64_t total, std::uint64_t top_p) {
    const Product product = product_of(total, top_p << 24);
    const std::uint64_t target = product.high + (product.low != 0);
    return target == 0 ? 1 : target;
}

/// 53 random bits for the token at `position` of a sequence; the same on every machine.
CODA_HD std::uint64_t draw_of(std::uint64_t seed, std::int64_t position) {
    constexpr std::uint64_t kStream = 0x73616d706c65;  // "sample"
    const Random4 random = philox(seed, kStream, static_cast<std::uint64_t>(position));
    return std::uint64_t{random.word[0]} << 21 ^ random.word[1] >> 11;
}

/// floor(draw 2^-53 total): where in the cumulated masses the choice falls. Below `total`, which is below 2^63.
CODA_HD std::uint64_t point_of(std::uint64_t draw, std::uint64_t total) { return product_of(draw << 11, total).high; }

/// Which tokens stay: all with larger keys, and the first `ties` by id that have this key.
struct Cut {
    std::uint32_t key = 0;  // no finite logit has it: all stay
    std::uint64_t ties = 0;
};

/// How many tokens have a key, and their masses.
struct Bin {
    std::uint64_t count = 0, mass = 0;
};
inline constexpr int kBins = 256, kRounds = 4;

/// Searches the key at which the tokens, largest keys first, reach a number (top-k) or a sum of masses (top-p). Each of
/// kRounds rounds adds up a histogram of the tokens that match() by their bin(), and narrows the key by 8 bits.
struct CutSearch {
    std::uint32_t prefix = 0;  // the bits of the key that are known
    int shift = 32;            // how many are not
    Bin above;                 // of the tokens with larger known bits
    Bin at;                    // of the tokens with these: of equal keys, after the last round

    CODA_HD bool matches(std::uint32_t key) const { return shift == 32 || key >> shift == prefix; }
    CODA_HD int bin(std::uint32_t key) const { return static_cast<int>(key >> (shift - 8) & 0xffu); }

    /// Takes the bin at which what is above and the bins from the highest on reach `goal` tokens or, with `by_mass`,
    /// that mass. All bins together reach it.
    CODA_HD void narrow(const Bin* bins, bool by_mass, std::uint64_t goal) {
        int index = kBins - 1;
        while (index > 0 && (by_mass ? above.mass + bins[index].mass : above.count + bins[index].count) < goal) {
            above.count += bins[index].count;
            above.mass += bins[index].mass;
            --index;
        }
        at = bins[index];
        prefix = prefix << 8 | static_cast<std::uint32_t>(index);
        shift -= 8;
    }

    /// The cut, after the last round: as many of the equal tokens as the goal needs. Each of them has the mass `each`.
    CODA_HD Cut cut(bool by_mass, std::uint64_t goal, std::uint64_t each) const {
        if (!by_mass) return {prefix, goal - above.count};
        // A division of 64-bit words is a call on a GPU; this is once per search.
        std::uint64_t ties = 0;
        for (std::uint64_t step = std::uint64_t{1} << 22; step != 0; step /= 2)
            if (above.mass + (ties + step) * each < goal) ties += step;
        return {prefix, ties + 1};
    }

    /// The mass of what stays.
    CODA_HD std::uint64_t total(const Cut& found, std::uint64_t each) const { return above.mass + found.ties * each; }
};

}  // namespace sampling
}  // namespace coda
