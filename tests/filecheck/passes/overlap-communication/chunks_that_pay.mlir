// RUN: distir-opt %s -p "overlap-communication{chunks=4 machine=dgx-a100},check-module" | filecheck %s
// CHECK:      dist.mesh @mesh = <["tp" = 8]>
// CHECK:      func.func @main
// CHECK-NEXT: [[V0:%.*]] = dist.slice %x [0:2048, 0:2048]
// CHECK-NEXT: [[P:%.*]] = "onnx.MatMul"([[V0]], %w)
// CHECK-NEXT: [[P_1:%.*]] = dist.move [[P]]
// CHECK-NEXT: [[V1:%.*]] = dist.allreduce sum [[P_1]] over "tp"
// CHECK-NEXT: [[V2:%.*]] = dist.slice %x [2048:4096, 0:2048]
// CHECK-NEXT: [[P_2:%.*]] = "onnx.MatMul"([[V2]], %w)
// CHECK-NEXT: [[P_3:%.*]] = dist.move [[P_2]]
// CHECK-NEXT: [[V3:%.*]] = dist.allreduce sum [[P_3]] over "tp"
// CHECK-NEXT: [[V4:%.*]] = dist.slice %x [4096:6144, 0:2048]
// CHECK-NEXT: [[P_4:%.*]] = "onnx.MatMul"([[V4]], %w)
// CHECK-NEXT: [[P_5:%.*]] = dist.move [[P_4]]
// CHECK-NEXT: [[V5:%.*]] = dist.allreduce sum [[P_5]] over "tp"
// CHECK-NEXT: [[V6:%.*]] = dist.slice %x [6144:8192, 0:2048]
// CHECK-NEXT: [[P_6:%.*]] = "onnx.MatMul"([[V6]], %w)
// CHECK-NEXT: [[P_7:%.*]] = dist.move [[P_6]]
// CHECK-NEXT: [[V7:%.*]] = dist.allreduce sum [[P_7]] over "tp"
// CHECK-NEXT: [[V8:%.*]] = dist.move [[V1]]
// CHECK-NEXT: [[V9:%.*]] = dist.move [[V3]]
// CHECK-NEXT: [[V10:%.*]] = dist.move [[V5]]
// CHECK-NEXT: [[V11:%.*]] = dist.move [[V7]]
// CHECK-NEXT: [[S:%.*]] = dist.concat [[V8]], [[V9]], [[V10]], [[V11]] dim 0
// CHECK-NEXT: [[A:%.*]] = "onnx.Relu"([[S]])
// CHECK-NEXT: [[Q:%.*]] = "onnx.MatMul"(%y, %v)
// CHECK-NEXT: [[Q_1:%.*]] = dist.move [[Q]]
// CHECK-NEXT: [[T:%.*]] = dist.allreduce sum [[Q_1]] over "tp"
// CHECK-NEXT: [[T_1:%.*]] = dist.move [[T]]
// CHECK-NEXT: [[B:%.*]] = "onnx.Relu"([[T_1]])
// CHECK-NEXT: func.return [[A]], [[B]]

// With a machine, the sum of a large product is cut, in as many chunks as are fastest, and that of a small one is not: four messages take longer than one.
dist.mesh @mesh = <["tp" = 8]>

func.func @main(%x: tensor<8192x2048xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:8192, 0:2048] of [8192, 16384], "tp" + [0, 2048]>},
                %w: tensor<2048x8192xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:2048, 0:8192] of [16384, 8192], "tp" + [2048, 0]>},
                %y: tensor<8x8xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:8, 0:8] of [8, 64], "tp" + [0, 8]>},
                %v: tensor<8x8xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:8, 0:8] of [64, 8], "tp" + [8, 0]>})
    -> (tensor<8192x8192xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:8192, 0:8192] of [8192, 8192]>},
        tensor<8x8xbf16, #dist.on<0:8>> {dist.part = #dist.part<[0:8, 0:8] of [8, 8]>}) {
  %p = "onnx.MatMul"(%x, %w) : (tensor<8192x2048xbf16, #dist.on<0:8>>, tensor<2048x8192xbf16, #dist.on<0:8>>) -> tensor<8192x8192xbf16, #dist.on<0:8>>
  %s = dist.allreduce sum %p over "tp" : (tensor<8192x8192xbf16, #dist.on<0:8>>) -> tensor<8192x8192xbf16, #dist.on<0:8>>
  %a = "onnx.Relu"(%s) : (tensor<8192x8192xbf16, #dist.on<0:8>>) -> tensor<8192x8192xbf16, #dist.on<0:8>>
  %q = "onnx.MatMul"(%y, %v) : (tensor<8x8xbf16, #dist.on<0:8>>, tensor<8x8xbf16, #dist.on<0:8>>) -> tensor<8x8xbf16, #dist.on<0:8>>
  %t = dist.allreduce sum %q over "tp" : (tensor<8x8xbf16, #dist.on<0:8>>) -> tensor<8x8xbf16, #dist.on<0:8>>
  %b = "onnx.Relu"(%t) : (tensor<8x8xbf16, #dist.on<0:8>>) -> tensor<8x8xbf16, #dist.on<0:8>>
  func.return %a, %b : tensor<8192x8192xbf16, #dist.on<0:8>>, tensor<8x8xbf16, #dist.on<0:8>>
}
