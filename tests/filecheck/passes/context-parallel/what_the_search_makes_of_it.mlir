// RUN: distir-opt %s -p 'context-parallel,ilp-shard{mesh="cp=2"},apply-sharding{grouped=true},ring-attention' | filecheck %s

// From a model to a ring: projections are computed of each device's own tokens, and go around.

// CHECK-NOT:  dist.allgather
// CHECK:      [[K:%.*]] = "onnx.MatMul"(%x, %w) : (tensor<2048x512xf32, #dist.on<0:2>>, tensor<512x512xf32, #dist.on<0:2>>)
// CHECK-NEXT: [[V:%.*]] = "onnx.Relu"([[K]])
// CHECK-NEXT: [[K_1:%.*]] = dist.exchange [[K]] dim 0 from [2048, 0]
// CHECK-NEXT: [[V_1:%.*]] = dist.exchange [[V]] dim 0 from [2048, 0]
// CHECK-NEXT: [[O:%.*]], [[S:%.*]] = "attention.forward"([[K]], [[K]], [[V]])
// CHECK-NEXT: [[P:%.*]], [[T:%.*]] = "attention.forward"([[K]], [[K_1]], [[V_1]])
// CHECK-NEXT: "attention.combine"([[O]], [[S]], [[P]], [[T]])
func.func @main(%x: tensor<4096x512xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<512x512xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4096x512xf32> {dist.name = "o", dist.role = "output"}) {
  %k = "onnx.MatMul"(%x, %w) : (tensor<4096x512xf32>, tensor<512x512xf32>) -> tensor<4096x512xf32>
  %v = "onnx.Relu"(%k) : (tensor<4096x512xf32>) -> tensor<4096x512xf32>
  %o, %s = "attention.forward"(%k, %k, %v) <{scale = 0.5 : f64, diagonal = 0 : i64}> : (tensor<4096x512xf32>, tensor<4096x512xf32>, tensor<4096x512xf32>) -> (tensor<4096x512xf32>, tensor<4096xf32>)
  func.return %o : tensor<4096x512xf32>
}
