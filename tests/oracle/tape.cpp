#include "tests/oracle/tape.h"

#include <cmath>

namespace coda::textbook {

void Tape::add_edge(const Variable& operand, double derivative) {
    if (operand.tape_ == nullptr) return;
    operands_.push_back(operand.node_);
    derivatives_.push_back(derivative);
}

Variable Tape::add_node(double value) {
    edges_end_.push_back(operands_.size());
    return {value, this, static_cast<std::uint32_t>(edges_end_.size() - 1)};
}

Variable Tape::input(double value) { return add_node(value); }

Variable Tape::record(double value, std::initializer_list<Partial> partials) {
    Tape* tape = nullptr;
    for (const Partial& partial : partials)
        if (partial.operand.tape_ != nullptr) tape = partial.operand.tape_;
    if (tape == nullptr) return value;
    for (const Partial& partial : partials) tape->add_edge(partial.operand, partial.derivative);
    return tape->add_node(value);
}

std::vector<double> Tape::adjoints(const Variable& output) const {
    std::vector<double> adjoint(edges_end_.size(), 0.0);
    if (output.tape_ != this) return adjoint;
    adjoint[output.node_] = 1;
    for (std::size_t node = output.node_ + std::size_t{1}; node-- > 0;) {
        if (adjoint[node] == 0) continue;
        const std::size_t begin = node == 0 ? 0 : edges_end_[node - 1];
        for (std::size_t edge = begin; edge < edges_end_[node]; ++edge)
            adjoint[operands_[edge]] += adjoint[node] * derivatives_[edge];
    }
    return adjoint;
}

Variable operator+(const Variable& a, const Variable& b) {
    return Tape::record(a.value() + b.value(), {{a, 1}, {b, 1}});
}

Variable operator-(const Variable& a, const Variable& b) {
    return Tape::record(a.value() - b.value(), {{a, 1}, {b, -1}});
}

Variable operator*(const Variable& a, const Variable& b) {
    return Tape::record(a.value() * b.value(), {{a, b.value()}, {b, a.value()}});
}

Variable operator/(const Variable& a, const Variable& b) {
    const double quotient = a.value() / b.value();
    return Tape::record(quotient, {{a, 1 / b.value()}, {b, -quotient / b.value()}});
}

Variable operator-(const Variable& a) { return Tape::record(-a.value(), {{a, -1}}); }

Variable exp(const Variable& a) {
    const double value = std::exp(a.value());
    return Tape::record(value, {{a, value}});
}

Variable log(const Variable& a) { return Tape::record(std::log(a.value()), {{a, 1 / a.value()}}); }

Variable sqrt(const Variable& a) {
    const double root = std::sqrt(a.value());
    return Tape::record(root, {{a, 0.5 / root}});
}

Variable dot(std::span<const Variable> a, std::span<const Variable> b) {
    double sum = 0;
    Tape* tape = nullptr;
    for (std::size_t i = 0; i < a.size(); ++i) {
        sum += a[i].value() * b[i].value();
        if (a[i].tape_ != nullptr) tape = a[i].tape_;
        if (b[i].tape_ != nullptr) tape = b[i].tape_;
    }
    if (tape == nullptr) return sum;
    for (std::size_t i = 0; i < a.size(); ++i) {
        tape->add_edge(a[i], b[i].value());
        tape->add_edge(b[i], a[i].value());
    }
    return tape->add_node(sum);
}

}  // namespace coda::textbook
