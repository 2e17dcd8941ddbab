// RUN: distir-opt %s -p "overlap-communication{chunks=4},check-module" | filecheck %s
// CHECK:      func.func @main
// CHECK-NEXT: [[V0:%.*]] = dist.slice %x0 [0:2, 0:4]
// CHECK-NEXT: [[P0:%.*]] = "onnx.MatMul"([[V0]], %w0)
// CHECK-NEXT: [[P0_1:%.*]] = dist.move [[P0]]
// CHECK-NEXT: [[V1:%.*]] = dist.slice %x1 [0:2, 0:4]
// CHECK-NEXT: [[P1:%.*]] = "onnx.MatMul"([[V1]], %w1)
// CHECK-NEXT: [[P1_1:%.*]] = dist.move [[P1]]
// CHECK-NEXT: [[V2:%.*]], [[V3:%.*]] = dist.allreduce sum [[P0_1]], [[P1_1]]
// CHECK-NEXT: [[V4:%.*]] = dist.slice %x0 [2:4, 0:4]
// CHECK-NEXT: [[P0_2:%.*]] = "onnx.MatMul"([[V4]], %w0)
// CHECK-NEXT: [[P0_3:%.*]] = dist.move [[P0_2]]
// CHECK-NEXT: [[V5:%.*]] = dist.slice %x1 [2:4, 0:4]
// CHECK-NEXT: [[P1_2:%.*]] = "onnx.MatMul"([[V5]], %w1)
// CHECK-NEXT: [[P1_3:%.*]] = dist.move [[P1_2]]
// CHECK-NEXT: [[V6:%.*]], [[V7:%.*]] = dist.allreduce sum [[P0_3]], [[P1_3]]
// CHECK-NEXT: [[V8:%.*]] = dist.slice %x0 [4:6, 0:4]
// CHECK-NEXT: [[P0_4:%.*]] = "onnx.MatMul"([[V8]], %w0)
// CHECK-NEXT: [[P0_5:%.*]] = dist.move [[P0_4]]
// CHECK-NEXT: [[V9:%.*]] = dist.slice %x1 [4:6, 0:4]
// CHECK-NEXT: [[P1_4:%.*]] = "onnx.MatMul"([[V9]], %w1)
// CHECK-NEXT: [[P1_5:%.*]] = dist.move [[P1_4]]
// CHECK-NEXT: [[V10:%.*]], [[V11:%.*]] = dist.allreduce sum [[P0_5]], [[P1_5]]
// CHECK-NEXT: [[V12:%.*]] = dist.move [[V2]]
// CHECK-NEXT: [[V13:%.*]] = dist.move [[V6]]
// CHECK-NEXT: [[V14:%.*]] = dist.move [[V10]]
// CHECK-NEXT: [[A0:%.*]] = dist.concat [[V12]], [[V13]], [[V14]] dim 0
// CHECK-NEXT: [[V15:%.*]] = dist.move [[V3]]
// CHECK-NEXT: [[V16:%.*]] = dist.move [[V7]]
// CHECK-NEXT: [[V17:%.*]] = dist.move [[V11]]
// CHECK-NEXT: [[A1:%.*]] = dist.concat [[V15]], [[V16]], [[V17]] dim 0
// CHECK-NEXT: [[Q0:%.*]] = "onnx.MatMul"([[A0]], [[A0]])
// CHECK-NEXT: [[Q0_1:%.*]] = dist.move [[Q0]]
// CHECK-NEXT: [[Q1:%.*]] = "onnx.MatMul"([[A1]], [[A1]])
// CHECK-NEXT: [[Q1_1:%.*]] = dist.move [[Q1]]
// CHECK-NEXT: [[B0:%.*]], [[B1:%.*]] = dist.allreduce sum [[Q0_1]], [[Q1_1]]
// CHECK-NEXT: [[T0:%.*]] = "onnx.Tanh"([[A0]])
// CHECK-NEXT: [[T0_1:%.*]] = dist.move [[T0]]
// CHECK-NEXT: [[T1:%.*]] = "onnx.Tanh"([[A1]])
// CHECK-NEXT: [[T1_1:%.*]] = dist.move [[T1]]
// CHECK-NEXT: [[M0:%.*]], [[M1:%.*]] = dist.allreduce max [[T0_1]], [[T1_1]]
// CHECK-NEXT: [[B0_1:%.*]] = dist.move [[B0]]
// CHECK-NEXT: [[M0_1:%.*]] = dist.move [[M0]]
// CHECK-NEXT: [[C0:%.*]] = "onnx.Add"([[B0_1]], [[M0_1]])
// CHECK-NEXT: [[B1_1:%.*]] = dist.move [[B1]]
// CHECK-NEXT: [[M1_1:%.*]] = dist.move [[M1]]
// CHECK-NEXT: [[C1:%.*]] = "onnx.Add"([[B1_1]], [[M1_1]])
// CHECK-NEXT: func.return [[C0]], [[C1]]

// Six rows do not divide by four: there are three chunks of the product and of its sum. What is computed beside the second collective hides it: it stays whole, and so does the third,
// of which no contraction is the maker.

func.func @main(%x0: tensor<6x4xf32, #dist.on<0>>, %x1: tensor<6x4xf32, #dist.on<1>>,
                %w0: tensor<4x6xf32, #dist.on<0>>, %w1: tensor<4x6xf32, #dist.on<1>>)
    -> (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<1>>) {
  %p0 = "onnx.MatMul"(%x0, %w0) : (tensor<6x4xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<0>>) -> tensor<6x6xf32, #dist.on<0>>
  %p1 = "onnx.MatMul"(%x1, %w1) : (tensor<6x4xf32, #dist.on<1>>, tensor<4x6xf32, #dist.on<1>>) -> tensor<6x6xf32, #dist.on<1>>
  %a0, %a1 = dist.allreduce sum %p0, %p1 : (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<1>>) -> (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<1>>)
  %q0 = "onnx.MatMul"(%a0, %a0) : (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<0>>) -> tensor<6x6xf32, #dist.on<0>>
  %q1 = "onnx.MatMul"(%a1, %a1) : (tensor<6x6xf32, #dist.on<1>>, tensor<6x6xf32, #dist.on<1>>) -> tensor<6x6xf32, #dist.on<1>>
  %b0, %b1 = dist.allreduce sum %q0, %q1 : (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<1>>) -> (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<1>>)
  %t0 = "onnx.Tanh"(%a0) : (tensor<6x6xf32, #dist.on<0>>) -> tensor<6x6xf32, #dist.on<0>>
  %t1 = "onnx.Tanh"(%a1) : (tensor<6x6xf32, #dist.on<1>>) -> tensor<6x6xf32, #dist.on<1>>
  %m0, %m1 = dist.allreduce max %t0, %t1 : (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<1>>) -> (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<1>>)
  %c0 = "onnx.Add"(%b0, %m0) : (tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<0>>) -> tensor<6x6xf32, #dist.on<0>>
  %c1 = "onnx.Add"(%b1, %m1) : (tensor<6x6xf32, #dist.on<1>>, tensor<6x6xf32, #dist.on<1>>) -> tensor<6x6xf32, #dist.on<1>>
  func.return %c0, %c1 : tensor<6x6xf32, #dist.on<0>>, tensor<6x6xf32, #dist.on<1>>
}
