// RUN: distir-opt %s -p "overlap-communication{chunks=2},check-module" | filecheck %s
// CHECK:      dist.mesh @mesh = <["tp" = 2]>
// CHECK:      func.func @main
// CHECK-NEXT: [[V0:%.*]] = dist.slice %x [0:2, 0:4]
// CHECK-NEXT: [[V1:%.*]] = dist.slice %x [4:6, 0:4]
// CHECK-NEXT: [[V2:%.*]] = dist.concat [[V0]], [[V1]] dim 0
// CHECK-NEXT: [[P:%.*]] = "onnx.MatMul"([[V2]], %w)
// CHECK-NEXT: [[N:%.*]] = "onnx.Neg"([[P]])
// CHECK-NEXT: [[N_1:%.*]] = dist.move [[N]]
// CHECK-NEXT: [[V3:%.*]] = dist.reducescatter sum [[N_1]] dim 0 over "tp"
// CHECK-NEXT: [[V4:%.*]] = dist.slice %x [2:4, 0:4]
// CHECK-NEXT: [[V5:%.*]] = dist.slice %x [6:8, 0:4]
// CHECK-NEXT: [[V6:%.*]] = dist.concat [[V4]], [[V5]] dim 0
// CHECK-NEXT: [[P_1:%.*]] = "onnx.MatMul"([[V6]], %w)
// CHECK-NEXT: [[N_2:%.*]] = "onnx.Neg"([[P_1]])
// CHECK-NEXT: [[N_3:%.*]] = dist.move [[N_2]]
// CHECK-NEXT: [[V7:%.*]] = dist.reducescatter sum [[N_3]] dim 0 over "tp"
// CHECK-NEXT: [[V8:%.*]] = dist.move [[V3]]
// CHECK-NEXT: [[V9:%.*]] = dist.move [[V7]]
// CHECK-NEXT: [[S:%.*]] = dist.concat [[V8]], [[V9]] dim 0
// CHECK-NEXT: [[R:%.*]] = "onnx.Relu"([[S]])
// CHECK-NEXT: [[V10:%.*]] = dist.slice [[R]] [0:2, 0:6]
// CHECK-NEXT: [[V11:%.*]] = dist.move [[V10]]
// CHECK-NEXT: [[V12:%.*]] = dist.slice [[R]] [2:4, 0:6]
// CHECK-NEXT: [[V13:%.*]] = dist.move [[V12]]
// CHECK-NEXT: [[V14:%.*]] = dist.allgather [[V11]] dim 0 over "tp"
// CHECK-NEXT: [[V15:%.*]] = dist.move [[V14]]
// CHECK-NEXT: [[Y:%.*]] = "onnx.MatMul"([[V15]], %v)
// CHECK-NEXT: [[V16:%.*]] = dist.allgather [[V13]] dim 0 over "tp"
// CHECK-NEXT: [[V17:%.*]] = dist.move [[V16]]
// CHECK-NEXT: [[Y_1:%.*]] = "onnx.MatMul"([[V17]], %v)
// CHECK-NEXT: [[V18:%.*]] = dist.slice [[Y]] [0:2, 0:6]
// CHECK-NEXT: [[V19:%.*]] = dist.slice [[Y]] [2:4, 0:6]
// CHECK-NEXT: [[V20:%.*]] = dist.slice [[Y_1]] [0:2, 0:6]
// CHECK-NEXT: [[V21:%.*]] = dist.slice [[Y_1]] [2:4, 0:6]
// CHECK-NEXT: [[Y_2:%.*]] = dist.concat [[V18]], [[V20]], [[V19]], [[V21]] dim 0
// CHECK-NEXT: func.return [[Y_2]]

// Rows are cut: the sum of one half is on its way while the other half is computed, and one half is gathered beside the product of the other. A half of what is cut
// over devices, or gathered from them, is half of each device's rows.
dist.mesh @mesh = <["tp" = 2]>

func.func @main(%x: tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "tp" + [0, 4]>},
                %w: tensor<4x6xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:6] of [8, 6], "tp" + [4, 0]>},
                %v: tensor<6x6xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:6, 0:6] of [6, 12], "tp" + [0, 6]>})
    -> (tensor<8x6xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:6] of [8, 12], "tp" + [0, 6]>}) {
  %p = "onnx.MatMul"(%x, %w) : (tensor<8x4xf32, #dist.on<0:2>>, tensor<4x6xf32, #dist.on<0:2>>) -> tensor<8x6xf32, #dist.on<0:2>>
  %n = "onnx.Neg"(%p) : (tensor<8x6xf32, #dist.on<0:2>>) -> tensor<8x6xf32, #dist.on<0:2>>
  %s = dist.reducescatter sum %n dim 0 over "tp" : (tensor<8x6xf32, #dist.on<0:2>>) -> tensor<4x6xf32, #dist.on<0:2>>
  %r = "onnx.Relu"(%s) : (tensor<4x6xf32, #dist.on<0:2>>) -> tensor<4x6xf32, #dist.on<0:2>>
  %g = dist.allgather %r dim 0 over "tp" : (tensor<4x6xf32, #dist.on<0:2>>) -> tensor<8x6xf32, #dist.on<0:2>>
  %y = "onnx.MatMul"(%g, %v) : (tensor<8x6xf32, #dist.on<0:2>>, tensor<6x6xf32, #dist.on<0:2>>) -> tensor<8x6xf32, #dist.on<0:2>>
  func.return %y : tensor<8x6xf32, #dist.on<0:2>>
}
