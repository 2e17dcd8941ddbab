// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// The second call takes what the first made: a stage for each call, as nothing else would be even in time.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"},
                %v: tensor<8x8xf32> {dist.name = "v", dist.role = "parameter"},
                %w: tensor<8x8xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x8xf32> {dist.name = "z", dist.role = "output"}) {
  %a = func.call @encoder(%x, %v, %w) : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = func.call @encoder(%a, %v, %w) : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Add"(%a, %b) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z : tensor<4x8xf32>
}
func.func private @encoder(%x: tensor<4x8xf32>, %v: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %h = "onnx.MatMul"(%x, %v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.MatMul"(%h, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// CHECK:      [[A:%.*]] = func.call @forward_0(%x, %v, %w)
// CHECK-NEXT: %z = func.call @forward_1([[A]], %v, %w)
// CHECK:      func.func private @forward_0(
// CHECK-NEXT: func.call @encoder(
