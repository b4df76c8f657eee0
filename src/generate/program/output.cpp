#include "src/generate/program/output.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "kernels/core/error.h"
#include "src/core/console.h"
#include "src/core/standard_streams.h"

namespace coda {
namespace {

std::string ms_text(double seconds) {
    std::array<char, 32> out{};
    std::snprintf(out.data(), out.size(), "%.*f ms", seconds < 0.1 ? 2 : 0, 1000 * seconds);
    return out.data();
}

}  // namespace

TextOutput::TextOutput() : to_terminal_(prints_to_terminal()) {}

void TextOutput::put(std::string_view piece) {
    if (to_terminal_) {
        print_bytes(shown_.add(piece));
    } else {
        print_bytes(piece);
    }
}

void TextOutput::finish() { print_bytes("\n"); }

void put_answer(const GenerationAnswer& answer) { print_bytes(answer_line(answer)); }

std::string figures_line(const GenerationFigures& figures) {
    std::string line = text(figures.prompt_tokens, " prompt tokens in ", ms_text(figures.prefill_s));
    if (figures.first_token_s) line += " | first token after " + ms_text(*figures.first_token_s);
    line += text(" | ", figures.tokens, " tokens");
    if (figures.sequences != 1) line += text(" of ", figures.sequences, " sequences");
    if (figures.tokens > 0 && figures.decode_s > 0) {
        line += ", " + count_text(static_cast<double>(figures.tokens) / figures.decode_s) + " tok/s";
        if (figures.steps > 0 && figures.tokens > figures.steps) {
            std::array<char, 64> rate{};
            std::snprintf(rate.data(), rate.size(), ", %.2f per step",
                          static_cast<double>(figures.tokens) / static_cast<double>(figures.steps));
            line += rate.data();
        }
        const double rate = figures.bytes_read / figures.decode_s;
        if (std::isfinite(figures.peak_bytes_per_s)) {
            std::array<char, 64> share{};
            std::snprintf(share.data(), share.size(), ", %.0f%% of the memory's %.2f TB/s",
                          100 * rate / figures.peak_bytes_per_s, figures.peak_bytes_per_s / 1e12);
            line += share.data();
        }
    }
    return line;
}

}  // namespace coda
