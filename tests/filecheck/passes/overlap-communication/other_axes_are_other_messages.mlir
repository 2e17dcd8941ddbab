// RUN: distir-opt %s -p 'overlap-communication,check-module' | filecheck %s

// Reductions over different axes are of different devices.

// CHECK-NOT: tuple<
// CHECK: dist.allreduce sum {{.*}} over "dp"
// CHECK: dist.allreduce sum {{.*}} over "tp"
dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
func.func @main(%x: tensor<4xf32, #dist.on<0:4>> {dist.part = #dist.part<[0:4] of [4], partial sum>}, %y: tensor<4xf32, #dist.on<0:4>> {dist.part = #dist.part<[0:4] of [4], partial sum>}) -> (tensor<4xf32, #dist.on<0:4>>, tensor<4xf32, #dist.on<0:4>>) {
  %a = dist.allreduce sum %x over "dp" : (tensor<4xf32, #dist.on<0:4>>) -> tensor<4xf32, #dist.on<0:4>>
  %b = dist.allreduce sum %y over "tp" : (tensor<4xf32, #dist.on<0:4>>) -> tensor<4xf32, #dist.on<0:4>>
  func.return %a, %b : tensor<4xf32, #dist.on<0:4>>, tensor<4xf32, #dist.on<0:4>>
}
