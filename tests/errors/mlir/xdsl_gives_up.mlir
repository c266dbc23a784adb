// collopt %s
// A text that xDSL's parser fails on, not with a diagnostic of its own.
builtin.module attributes {a = dense<99999999999999999999999> : tensor<1xi64>} {
}
