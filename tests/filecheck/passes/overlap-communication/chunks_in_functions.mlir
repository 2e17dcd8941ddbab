// RUN: distir-opt %s -p "overlap-communication{chunks=2},check-module" | filecheck %s
// CHECK:      dist.mesh @mesh = <["tp" = 2]>
// CHECK:      func.func @main
// CHECK-NEXT: [[H:%.*]] = dist.call @layer(%x, %w, %v) on [0, 1]
// CHECK-NEXT: [[Y:%.*]] = dist.call @layer([[H]], %w, %v) on [0, 1]
// CHECK-NEXT: func.return [[Y]]
// CHECK:      func.func private @layer
// CHECK-NEXT: [[ROWS:%.*]] = onnx.Constant dense<[6, 4]>
// CHECK-NEXT: [[SHAPE:%.*]] = onnx.Constant dense<[2, 3, 4]>
// CHECK-NEXT: [[F:%.*]] = "onnx.Reshape"(%x, [[ROWS]])
// CHECK-NEXT: [[U:%.*]] = "onnx.MatMul"([[F]], %w)
// CHECK-NEXT: [[V0:%.*]] = dist.slice [[U]] [0:3, 0:4]
// CHECK-NEXT: [[D:%.*]] = "onnx.MatMul"([[V0]], %v)
// CHECK-NEXT: [[V1:%.*]] = onnx.Constant dense<[1, 3, 4]>
// CHECK-NEXT: [[P:%.*]] = "onnx.Reshape"([[D]], [[V1]])
// CHECK-NEXT: [[P_1:%.*]] = dist.move [[P]]
// CHECK-NEXT: [[V2:%.*]] = dist.allreduce sum [[P_1]] over "tp"
// CHECK-NEXT: [[V3:%.*]] = dist.slice [[U]] [3:6, 0:4]
// CHECK-NEXT: [[D_1:%.*]] = "onnx.MatMul"([[V3]], %v)
// CHECK-NEXT: [[V4:%.*]] = onnx.Constant dense<[1, 3, 4]>
// CHECK-NEXT: [[P_2:%.*]] = "onnx.Reshape"([[D_1]], [[V4]])
// CHECK-NEXT: [[P_3:%.*]] = dist.move [[P_2]]
// CHECK-NEXT: [[V5:%.*]] = dist.allreduce sum [[P_3]] over "tp"
// CHECK-NEXT: [[V6:%.*]] = dist.move [[V2]]
// CHECK-NEXT: [[V7:%.*]] = dist.move [[V5]]
// CHECK-NEXT: [[S:%.*]] = dist.concat [[V6]], [[V7]] dim 0
// CHECK-NEXT: func.return [[S]]

// A layer that ends with a sum which the next waits for is cut in chunks inside its function; a matrix whose batch is in the way of the rows is cut by the batch.
dist.mesh @mesh = <["tp" = 2]>

func.func @main(%x: tensor<2x3x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:2, 0:3, 0:4] of [2, 3, 4]>},
                %w: tensor<4x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:4] of [4, 8], "tp" + [0, 4]>},
                %v: tensor<4x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:4] of [8, 4], "tp" + [4, 0]>})
    -> (tensor<2x3x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:2, 0:3, 0:4] of [2, 3, 4]>}) {
  %h = dist.call @layer(%x, %w, %v) on [0, 1] : (tensor<2x3x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<2x3x4xf32, #dist.on<0:2>>
  %y = dist.call @layer(%h, %w, %v) on [0, 1] : (tensor<2x3x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<2x3x4xf32, #dist.on<0:2>>
  func.return %y : tensor<2x3x4xf32, #dist.on<0:2>>
}

func.func private @layer(%x: tensor<2x3x4xf32, #dist.on<0:2>>, %w: tensor<4x4xf32, #dist.on<0:2>>, %v: tensor<4x4xf32, #dist.on<0:2>>) -> tensor<2x3x4xf32, #dist.on<0:2>> {
  %rows = "onnx.Constant"() <{value = #onnx.tensor<dense<[6, 4]> : tensor<2xi64>>}> : () -> tensor<2xi64, #dist.on<0:2>>
  %shape = "onnx.Constant"() <{value = #onnx.tensor<dense<[2, 3, 4]> : tensor<3xi64>>}> : () -> tensor<3xi64, #dist.on<0:2>>
  %f = "onnx.Reshape"(%x, %rows) : (tensor<2x3x4xf32, #dist.on<0:2>>, tensor<2xi64, #dist.on<0:2>>) -> tensor<6x4xf32, #dist.on<0:2>>
  %u = "onnx.MatMul"(%f, %w) : (tensor<6x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<6x4xf32, #dist.on<0:2>>
  %d = "onnx.MatMul"(%u, %v) : (tensor<6x4xf32, #dist.on<0:2>>, tensor<4x4xf32, #dist.on<0:2>>) -> tensor<6x4xf32, #dist.on<0:2>>
  %p = "onnx.Reshape"(%d, %shape) : (tensor<6x4xf32, #dist.on<0:2>>, tensor<3xi64, #dist.on<0:2>>) -> tensor<2x3x4xf32, #dist.on<0:2>>
  %s = dist.allreduce sum %p over "tp" : (tensor<2x3x4xf32, #dist.on<0:2>>) -> tensor<2x3x4xf32, #dist.on<0:2>>
  func.return %s : tensor<2x3x4xf32, #dist.on<0:2>>
}
