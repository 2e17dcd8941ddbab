// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2}' | filecheck %s

// Layers run alone, then with scales of their own: the stage that has a layer's weights does the layer with its scale too.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"},
                %v: tensor<8x8xf32> {dist.name = "v", dist.role = "parameter"},
                %w: tensor<8x8xf32> {dist.name = "w", dist.role = "parameter"},
                %s: tensor<8xf32> {dist.name = "s", dist.role = "parameter"},
                %t: tensor<8xf32> {dist.name = "t", dist.role = "parameter"})
    -> (tensor<4x8xf32> {dist.name = "z", dist.role = "output"}) {
  %a = func.call @layer(%x, %v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = func.call @layer(%a, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %c = func.call @scaled(%x, %v, %s) : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %d = func.call @scaled(%c, %w, %t) : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Add"(%b, %d) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %z : tensor<4x8xf32>
}

func.func @layer(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

func.func @scaled(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %s: tensor<8xf32>) -> tensor<4x8xf32> {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Mul"(%y, %s) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  func.return %z : tensor<4x8xf32>
}

// CHECK:      [[A:%.*]], [[C:%.*]] = func.call @forward_0(%x, %v, %s) {dist.stage = 0 : i64, dist.phase = "forward"}
// CHECK-NEXT: %z = func.call @forward_1([[A]], %w, [[C]], %t) {dist.stage = 1 : i64, dist.phase = "forward"}
