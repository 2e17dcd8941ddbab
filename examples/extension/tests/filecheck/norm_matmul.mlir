// RUN: DISTIR_ROUNDTRIP
// RUN: distir-opt %s -p shardcombine-annotate --no-cache | filecheck %s --check-prefix RULE

// CHECK-LABEL: func.func @main
// CHECK: example.norm_matmul %x, %s, %w epsilon 1.000000e-05 : (tensor<8x16xf32>, tensor<16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>

// Nobody says that rows and columns can be cut and that the contracted dim, of which there is a norm, cannot.
// RULE: dist.rule = #dist.rule<[S1, _], [_], [_, S2] -> {S1: gather(0), S2: gather(1)},
// RULE-SAME: found = exact>
func.func @main(%x: tensor<8x16xf32>, %s: tensor<16xf32>, %w: tensor<16x4xf32>) -> tensor<8x4xf32> {
  %y = example.norm_matmul %x, %s, %w epsilon 1.000000e-05 : (tensor<8x16xf32>, tensor<16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
