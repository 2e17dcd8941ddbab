// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// What is dropped goes with rows of the batch, heads and queries, each with its positions; here those of queries and keys are one vector.

// CHECK: "attention.forward"
// CHECK-SAME: #dist.rule<[S1, S2, S4, _], [S1, S2, _, _], [S1, S2, _, S3], [], [S1], [S2], [S4], [_] -> {S1: [gather(0), gather(0)], S2: [gather(1), gather(1)], S3: [gather(3), identity], S4: [gather(2), gather(2)]}
func.func @main(%q: tensor<8x16x512x64xf32>, %k: tensor<8x16x512x64xf32>, %v: tensor<8x16x512x64xf32>, %key: tensor<i64>, %b: tensor<8xi64>) -> tensor<8x16x512x64xf32> {
  %h = "aten.arange"() <{end = 16 : i64}> : () -> tensor<16xi64>
  %n = "aten.arange"() <{end = 512 : i64}> : () -> tensor<512xi64>
  %o, %s = "attention.forward"(%q, %k, %v, %key, %b, %h, %n, %n) <{scale = 0.125 : f64, diagonal = 0 : i64, dropout = 0.1 : f64}> : (tensor<8x16x512x64xf32>, tensor<8x16x512x64xf32>, tensor<8x16x512x64xf32>, tensor<i64>, tensor<8xi64>, tensor<16xi64>, tensor<512xi64>, tensor<512xi64>) -> (tensor<8x16x512x64xf32>, tensor<8x16x512xf32>)
  func.return %o : tensor<8x16x512x64xf32>
}
