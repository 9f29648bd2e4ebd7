"""How finely operations are cut. A change here changes the bits of every model that exact mode trains."""

LIMITS = {
    "most_pieces": 16,
    "gemm_flops": 4_000_000,  # a piece of a matrix product
    "convolution_flops": 8_000_000,
    "elements": 32768,  # a piece of all else; torch itself stays on one thread below
    "block": 16,  # rows, columns and elements are cut at multiples of it: a vector of float32
}
