// RUN: distir-opt %s -p 'dtp-parallelize{tp=2}' | filecheck %s

// A layer of attention whose heads lie inside the rows of one dim: 3 rows of 4 heads are [12, 5, 2]. Each of two devices has the
// columns of 2 heads, and 2 heads of each row; the projection is cut by rows, so its result is summed.
func.func @main(%x: tensor<3x5x8xf32> {dist.name = "x", dist.role = "input"},
                %wq: tensor<8x8xf32> {dist.name = "wq", dist.role = "parameter"},
                %wk: tensor<8x8xf32> {dist.name = "wk", dist.role = "parameter"},
                %wv: tensor<8x8xf32> {dist.name = "wv", dist.role = "parameter"},
                %wo: tensor<8x8xf32> {dist.name = "wo", dist.role = "parameter"})
    -> (tensor<3x5x8xf32> {dist.name = "y", dist.role = "output"}) {
  %split = onnx.Constant dense<[3, 5, 4, 2]> : tensor<4xi64>
  %merge = onnx.Constant dense<[12, 5, 2]> : tensor<3xi64>
  %heads = onnx.Constant dense<[3, 4, 5, 2]> : tensor<4xi64>
  %join = onnx.Constant dense<[3, 5, 8]> : tensor<3xi64>
  %q = "onnx.MatMul"(%x, %wq) : (tensor<3x5x8xf32>, tensor<8x8xf32>) -> tensor<3x5x8xf32>
  %q1 = "onnx.Reshape"(%q, %split) : (tensor<3x5x8xf32>, tensor<4xi64>) -> tensor<3x5x4x2xf32>
  %q2 = "onnx.Transpose"(%q1) <{perm = [0, 2, 1, 3]}> : (tensor<3x5x4x2xf32>) -> tensor<3x4x5x2xf32>
  %q3 = "onnx.Reshape"(%q2, %merge) : (tensor<3x4x5x2xf32>, tensor<3xi64>) -> tensor<12x5x2xf32>
  %k = "onnx.MatMul"(%x, %wk) : (tensor<3x5x8xf32>, tensor<8x8xf32>) -> tensor<3x5x8xf32>
  %k1 = "onnx.Reshape"(%k, %split) : (tensor<3x5x8xf32>, tensor<4xi64>) -> tensor<3x5x4x2xf32>
  %k2 = "onnx.Transpose"(%k1) <{perm = [0, 2, 1, 3]}> : (tensor<3x5x4x2xf32>) -> tensor<3x4x5x2xf32>
  %k3 = "onnx.Reshape"(%k2, %merge) : (tensor<3x4x5x2xf32>, tensor<3xi64>) -> tensor<12x5x2xf32>
  %k4 = "onnx.Transpose"(%k3) <{perm = [0, 2, 1]}> : (tensor<12x5x2xf32>) -> tensor<12x2x5xf32>
  %v = "onnx.MatMul"(%x, %wv) : (tensor<3x5x8xf32>, tensor<8x8xf32>) -> tensor<3x5x8xf32>
  %v1 = "onnx.Reshape"(%v, %split) : (tensor<3x5x8xf32>, tensor<4xi64>) -> tensor<3x5x4x2xf32>
  %v2 = "onnx.Transpose"(%v1) <{perm = [0, 2, 1, 3]}> : (tensor<3x5x4x2xf32>) -> tensor<3x4x5x2xf32>
  %v3 = "onnx.Reshape"(%v2, %merge) : (tensor<3x4x5x2xf32>, tensor<3xi64>) -> tensor<12x5x2xf32>
  %s = "onnx.MatMul"(%q3, %k4) : (tensor<12x5x2xf32>, tensor<12x2x5xf32>) -> tensor<12x5x5xf32>
  %p = "onnx.Softmax"(%s) <{axis = 2 : si64}> : (tensor<12x5x5xf32>) -> tensor<12x5x5xf32>
  %o = "onnx.MatMul"(%p, %v3) : (tensor<12x5x5xf32>, tensor<12x5x2xf32>) -> tensor<12x5x2xf32>
  %o1 = "onnx.Reshape"(%o, %heads) : (tensor<12x5x2xf32>, tensor<4xi64>) -> tensor<3x4x5x2xf32>
  %o2 = "onnx.Transpose"(%o1) <{perm = [0, 2, 1, 3]}> : (tensor<3x4x5x2xf32>) -> tensor<3x5x4x2xf32>
  %o3 = "onnx.Reshape"(%o2, %join) : (tensor<3x5x4x2xf32>, tensor<3xi64>) -> tensor<3x5x8xf32>
  %y = "onnx.MatMul"(%o3, %wo) : (tensor<3x5x8xf32>, tensor<8x8xf32>) -> tensor<3x5x8xf32>
  func.return %y : tensor<3x5x8xf32>
}

// CHECK-LABEL: func.func private @layer
// CHECK:      [[Q:%.*]] = "onnx.MatMul"(%x, %wq) : {{.*}} -> tensor<3x5x4xf32, #dist.on<0>>
// CHECK:      %q1 = "onnx.Reshape"([[Q]], %0) : {{.*}} -> tensor<3x5x2x2xf32, #dist.on<0>>
// CHECK:      %q3 = "onnx.Reshape"(%q2, %2) : {{.*}} -> tensor<6x5x2xf32, #dist.on<0>>
// CHECK-LABEL: func.func private @forward_0
// CHECK-NOT:  dist.all
// CHECK:      [[S:%.*]] = "onnx.MatMul"(%q3, %k4) : {{.*}} -> tensor<6x5x5xf32, #dist.on<0>>
// CHECK-NEXT: [[S_1:%.*]] = "onnx.MatMul"(%q3_1, %k4_1) : {{.*}} -> tensor<6x5x5xf32, #dist.on<1>>
// CHECK-NEXT: [[P:%.*]] = "onnx.Softmax"([[S]])
// CHECK-NEXT: [[P_1:%.*]] = "onnx.Softmax"([[S_1]])
// CHECK-NEXT: [[O:%.*]] = "onnx.MatMul"([[P]], %v3) : {{.*}} -> tensor<6x5x2xf32, #dist.on<0>>
// CHECK-NEXT: %o_1 = "onnx.MatMul"([[P_1]], %v3_1) : {{.*}} -> tensor<6x5x2xf32, #dist.on<1>>
// CHECK:      %o1 = "onnx.Reshape"([[O]], %4) : {{.*}} -> tensor<3x2x5x2xf32, #dist.on<0>>
// CHECK:      [[Y:%.*]] = "onnx.MatMul"(%o3, %wo) : (tensor<3x5x4xf32, #dist.on<0>>, tensor<4x8xf32, #dist.on<0>>) -> tensor<3x5x8xf32, #dist.on<0>>
// CHECK-NEXT: [[Y_1:%.*]] = "onnx.MatMul"(%o3_1, %wo_1)
// CHECK-NEXT: func.return [[Y]], [[Y_1]]
