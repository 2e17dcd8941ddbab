// RUN: distir-opt %s -p context-parallel | filecheck %s

// Factors are those of the rule that an operation has: found for several rows, it has one more than it would have for the one that is left.

// CHECK:      [[K:%.*]] = "onnx.Transpose"(%x) {{.*}}dist.strategy = #dist.strategy<@mesh, {"cp": S3}>
// CHECK-NEXT: "attention.forward"(%q, [[K]], [[K]])
func.func @main(%q: tensor<1x6x8xf32>, %x: tensor<1x8x6xf32>) -> tensor<1x6x8xf32> {
  %k = "onnx.Transpose"(%x) <{perm = [0, 2, 1]}> {dist.rule = #dist.rule<[S1, S2, S3] -> {S1: gather(0), S2: gather(2), S3: gather(1)}>} : (tensor<1x8x6xf32>) -> tensor<1x6x8xf32>
  %o, %s = "attention.forward"(%q, %k, %k) <{scale = 0.5 : f64}> : (tensor<1x6x8xf32>, tensor<1x6x8xf32>, tensor<1x6x8xf32>) -> (tensor<1x6x8xf32>, tensor<1x6xf32>)
  func.return %o : tensor<1x6x8xf32>
}
