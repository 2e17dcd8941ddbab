// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// Each view has a layer of its own before one that both take: both of the former are done before that.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"},
                %y: tensor<4x8xf32> {dist.name = "y", dist.role = "input"},
                %t: tensor<8x8xf32> {dist.name = "t", dist.role = "parameter"},
                %u: tensor<8x8xf32> {dist.name = "u", dist.role = "parameter"},
                %v: tensor<8x8xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<4x8xf32> {dist.name = "z", dist.role = "output"}) {
  %a = "onnx.MatMul"(%x, %t) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.MatMul"(%a, %v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.MatMul"(%y, %u) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %d = "onnx.MatMul"(%c, %v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Add"(%b, %d) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z : tensor<4x8xf32>
}

// CHECK:      [[A:%.*]], [[C:%.*]] = func.call @forward_0(%x, %t, %y, %u)
// CHECK-NEXT: %z = func.call @forward_1([[A]], %v, [[C]])
