#include "kernels/cases/op_cases.h"

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "kernels/cost.h"

namespace coda::cases {

View OpCase::add(const char* name, DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale,
                 Access access, std::int64_t gap) {
    const View view{static_cast<BufferId>(buffers.size()), dtype, 0, rows, columns, columns + gap, 0};
    buffers.push_back({name, view, fill, scale, access});
    return view;
}

View OpCase::scratch(std::int64_t bytes_needed) {
    View view = add("scratch", DType::f32, 1, std::max<std::int64_t>(ceil_div(bytes_needed, 4), 1), Fill::nothing);
    view.dtype = DType::u8;
    view.cols = view.ld = bytes_needed;
    return view;
}

OpCase OpCase::finish(const Op& made, const std::string& shape_text) {
    return finish(made, shape_text, static_cast<std::int64_t>(cost(made).bytes));
}

OpCase OpCase::finish(const Op& made, const std::string& shape_text, std::int64_t bytes_moved) {
    op = made;
    shape = shape_text;
    bytes = static_cast<double>(bytes_moved);
    return *this;
}

std::vector<Program> all_programs() {
    std::vector<Program> all;
    for_each_op_type([&]<class T>() {
        for (const Program& program : cases_of<T>().programs) all.push_back(program);
    });
    return all;
}

std::vector<Program> f8_programs() {
    std::vector<Program> all;
    for_each_op_type([&]<class T>() {
        for (const Program& program : cases_of<T>().f8) all.push_back(program);
    });
    return all;
}

Program program_named(const std::string& name) {
    std::string known;
    std::vector<Program> programs = all_programs();
    for (const Program& program : f8_programs()) programs.push_back(program);
    for (const Program& program : programs) {
        if (name == program.name) return program;
        known += (known.empty() ? "" : ", ") + std::string(program.name);
    }
    throw Error(text("unknown GEMM program '", name, "'; there are ", known));
}

GemmCase make_case(const Shape& shape, const CaseOptions& options) {
    return program_named(shape.program).make(shape, options);
}

std::vector<Shape> preset(const std::string& name) {
    if (name == "square") {
        std::vector<Shape> shapes;
        for (const std::int64_t size : {2048, 4096, 8192})
            for (const char* program : {"Linear", "Linear in_out", "WeightGradient"})
                shapes.push_back({program, size, size, size});
        return shapes;
    }
    require(name == "llama1b" || name == "llama8b", "unknown preset '", name, "': llama1b, llama8b or square");
    const bool small = name == "llama1b";
    const std::int64_t m = small ? 32768 : 16384;
    const std::int64_t d = small ? 2048 : 4096;   // model width
    const std::int64_t f = small ? 8192 : 14336;  // feed-forward width
    const std::int64_t q = small ? 3072 : 6144;   // q, k and v heads
    const std::int64_t vocab = 128256;
    return {
        {"LinearRope rstd", m, q, d},
        {"LinearResidualRms", m, d, d},
        {"LinearSwiglu rstd", m, 2 * f, d},
        {"LinearResidualRms", m, d, f},
        {"LinearCrossEntropy rstd", m, vocab, d},
        {"LinearRmsBackward", m, d, vocab},
        {"LinearSwigluBackward", m, f, d},
        {"LinearRmsBackward", m, d, 2 * f},
        {"LinearHeadDot", m, d, d},
        {"LinearRmsBackward", m, d, q},
        {"WeightGradient", q, d, m},
        {"WeightGradient", d, d, m},
        {"WeightGradient", 2 * f, d, m},
        {"WeightGradient", d, f, m},
        {"WeightGradient", vocab, d, m},
        {"Linear", m, q, d},
        {"Linear", m, d, d},
        {"Linear", m, 2 * f, d},
        {"Linear", m, d, f},
        {"Linear in_out", m, d, 2 * f},
        {"Linear in_out", m, f, d},
        {"Linear in_out", m, d, q},
        {"Linear rstd", m, d, d},
    };
}

}  // namespace coda::cases
