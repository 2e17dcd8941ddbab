// RUN: distir-opt %s -p "overlap-communication{chunks=2 in-place=true},check-module" | filecheck %s
// RUN: distir-opt %s -p "overlap-communication{chunks=2},check-module" | filecheck %s --check-prefix=COPIED

// What cuts and joins chunks says that kernels read and write them where they lie.
// CHECK:      [[A:%.*]] = dist.slice %x [0:4, 0:4] {dist.chunked}
// CHECK-NEXT: "onnx.MatMul"([[A]], %w)
// CHECK:      [[B:%.*]] = dist.slice %x [4:8, 0:4] {dist.chunked}
// CHECK-NEXT: "onnx.MatMul"([[B]], %w)
// CHECK:      dist.concat %{{.*}}, %{{.*}} dim 0 {dist.chunked}
// COPIED:     dist.concat
// COPIED-NOT: dist.chunked
dist.mesh @mesh = <["tp" = 2]>

func.func @main(%x: tensor<8x4xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:4] of [8, 8], "tp" + [0, 4]>},
                %w: tensor<4x6xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:4, 0:6] of [8, 6], "tp" + [4, 0]>})
    -> (tensor<8x6xf32, #dist.on<0:2>> {dist.part = #dist.part<[0:8, 0:6] of [8, 6]>}) {
  %p = "onnx.MatMul"(%x, %w) : (tensor<8x4xf32, #dist.on<0:2>>, tensor<4x6xf32, #dist.on<0:2>>) -> tensor<8x6xf32, #dist.on<0:2>>
  %s = dist.allreduce sum %p over "tp" : (tensor<8x6xf32, #dist.on<0:2>>) -> tensor<8x6xf32, #dist.on<0:2>>
  %a = "onnx.Relu"(%s) : (tensor<8x6xf32, #dist.on<0:2>>) -> tensor<8x6xf32, #dist.on<0:2>>
  func.return %a : tensor<8x6xf32, #dist.on<0:2>>
}
