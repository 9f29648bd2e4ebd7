"""How finely operations are cut. A change here changes the bits of every model that exact mode trains.

The number of pieces is a power of two, so that it suits two, four and eight threads, and grows more slowly
than the work: each piece has costs of its own, such as the weights that are laid out again for it. Two pieces
take four times the work that is named here (eight times in products), four pieces four (eight) times as much
again."""

LIMITS = {
    "most_pieces": 16,  # no more than 64: `kernels.cpp` has a bit for each
    "gemm_work": 500_000,  # floating-point operations of a product, and 64 for each element of the output
    "convolution_work": 7_500_000,  # the same
    "element_work": 32768,  # elements; torch itself stays on one thread below
    "block": 16,  # rows, columns and elements are cut at multiples of it: a vector of float32
}
