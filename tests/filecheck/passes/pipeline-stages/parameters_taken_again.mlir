// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// Two views go through the same layers: the stage that has a layer's parameters does that layer of both.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"},
                %y: tensor<4x8xf32> {dist.name = "y", dist.role = "input"},
                %v: tensor<8x8xf32> {dist.name = "v", dist.role = "parameter"},
                %w: tensor<8x8xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x8xf32> {dist.name = "z", dist.role = "output"}) {
  %a = "onnx.MatMul"(%x, %v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.Relu"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.MatMul"(%b, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %n = "onnx.Neg"(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %d = "onnx.MatMul"(%n, %v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %e = "onnx.Relu"(%d) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %f = "onnx.MatMul"(%e, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Add"(%c, %f) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z : tensor<4x8xf32>
}

// CHECK:      [[A:%.*]], [[E:%.*]] = func.call @forward_0(%x, %v, %y) {dist.stage = 0 : i64, dist.phase = "forward"}
// CHECK-NEXT: %z = func.call @forward_1([[A]], %w, [[E]]) {dist.stage = 1 : i64, dist.phase = "forward"}
