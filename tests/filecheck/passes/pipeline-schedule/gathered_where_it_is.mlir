// RUN: distir-opt %s -p pipeline-schedule | filecheck %s

// The first stage updates a weight, so its devices alone have it, in parts. The second needs it whole: it is gathered on the first, and sent.
builtin.module attributes {dist.devices = 2 : i64} {
  dist.mesh @mesh = <["tp" = 2]>
  func.func @main(%x: tensor<4x4xf32, #dist.on<0:2>> {dist.name = "x", dist.role = "input"}, %w: tensor<2x4xf32, #dist.on<0:2>> {dist.name = "w", dist.role = "parameter"})
      -> (tensor<4x4xf32, #dist.on<0:2>> {dist.name = "y", dist.role = "output"}, tensor<2x4xf32, #dist.on<0:2>> {dist.name = "w", dist.role = "parameter"}) {
    %whole = dist.allgather %w dim 0 over "tp" : (tensor<2x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
    %h = dist.call @forward_0(%x, %whole) on [0, 1] {dist.stage = 0 : i64, dist.phase = "forward"} : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
    %y = dist.call @forward_1(%h, %whole) on [0, 1] {dist.stage = 1 : i64, dist.phase = "forward"} : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
    %new = dist.call @update_0(%w) on [0, 1] {dist.stage = 0 : i64, dist.phase = "update"} : (tensor<2x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
    func.return %y, %new : tensor<4x4xf32, #dist.on<0:2>>, tensor<2x4xf32, #dist.on<0:2>>
  }
  func.func private @forward_0(%h: tensor<4x4xf32, #dist.on<0:2>>, %w: tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>> {
    %y = "onnx.MatMul"(%h, %w) : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
    func.return %y : tensor<4x4xf32, #dist.on<0:2>>
  }
  func.func private @forward_1(%h: tensor<4x4xf32, #dist.on<0:2>>, %w: tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>> {
    %y = "onnx.MatMul"(%h, %w) : (tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<4x4xf32, #dist.on<0:2>>
    func.return %y : tensor<4x4xf32, #dist.on<0:2>>
  }
  func.func private @update_0(%w: tensor<2x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>> {
    %y = "onnx.Relu"(%w) : (tensor<2x4xf32, #dist.on<0:2>>) -> tensor<2x4xf32, #dist.on<0:2>>
    func.return %y : tensor<2x4xf32, #dist.on<0:2>>
  }
}

// CHECK:      [[WHOLE:%.*]] = dist.allgather %w dim 0 over "tp"
// CHECK-NEXT: [[H:%.*]] = dist.call @forward_0(%x, [[WHOLE]]) on [0, 1]
// CHECK-NEXT: [[H_1:%.*]] = dist.send [[H]] to 2 :
// CHECK-NEXT: [[WHOLE_1:%.*]] = dist.send [[WHOLE]] to 2 :
// CHECK-NEXT: dist.call @forward_1([[H_1]], [[WHOLE_1]]) on [2, 3]
// CHECK-NEXT: dist.call @update_0(%w) on [0, 1]
